package trafficgen

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kinds are the kinds of programs.
var kinds = map[string]func(seed uint64) Program{"sending": New, "receiving": NewReceiving}

// dimensions returns all those of a program.
func dimensions(p Program) []dimension {
	limit, each := p.dimensions()
	return slices.Concat(limit, each)
}

// all lists each choice of a kind of program, as Coverage names them.
func all(p Program) (list []string) {
	for _, d := range dimensions(p) {
		for _, c := range d.choices {
			if t := strings.TrimSuffix(d.name, "2") + "=" + c.value; !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	return list
}

func TestASeedIsAProgram(t *testing.T) {
	for _, random := range kinds {
		for seed := range uint64(200) {
			p := random(seed)
			require.Equal(t, p, random(seed))
			require.True(t, p.valid(), "%v", p)
			require.NotEmpty(t, p.String())
		}
		require.NotEqual(t, random(1).Senders, random(2).Senders)
	}
}

// Each choice is in one of a hundred programs at least, and each compatible pair is in some of 20,000.
func TestCoverage(t *testing.T) {
	for name, random := range kinds {
		t.Run(name, func(t *testing.T) { covers(t, random) })
	}
}

func covers(t *testing.T, random func(seed uint64) Program) {
	t.Helper()
	const count = 20_000
	c := NewCoverage()
	for seed := range uint64(count) {
		c.Add(random(seed), nil)
	}
	t.Log(c)
	kind := random(1)
	choices := all(kind)
	for _, trait := range choices {
		require.GreaterOrEqual(t, c.Traits[trait], count/100, trait)
	}
	// Two choices of one dimension cannot be together, nor two that `only` keeps apart.
	fit := 0
	for i, a := range choices {
		for _, b := range choices[i+1:] {
			x, y := a, b
			if x > y {
				x, y = y, x
			}
			if c.Pairs[[2]string{x, y}] > 0 {
				fit++
			} else if together(kind, x, y) {
				t.Errorf("%s and %s were never together", x, y)
			}
		}
	}
	require.Equal(t, len(c.Pairs), fit)
}

// together says whether some program of this kind may have both choices: it tries each dimension with all that they
// may depend on.
func together(p Program, a, b string) bool {
	_, each := p.dimensions()
	name := func(t string) string { n, _, _ := strings.Cut(t, "="); return n }
	apart := map[[2]string]bool{{"call=zerocopy", "option=md5_full"}: true, {"call=ring_closed", "peer=converses"}: true}
	if name(a) == name(b) && name(a) != "option" || apart[[2]string{a, b}] {
		return false
	}
	for _, user := range []string{"somebody", "root"} {
		for _, subject := range []string{"pid", "cgroup", "user"} {
			for _, when := range []string{"before", "connected", "sending"} {
				for _, then := range []string{"stays", "lower", "again"} {
					for _, kind := range each[0].choices {
						for _, life := range each[2].choices {
							limit := Traits{"user": user, "subject": subject, "when": when, "then": then}
							sender := Traits{"kind": kind.value, "life": life.value}
							if has(p, limit, sender, a) && has(p, limit, sender, b) {
								return true
							}
						}
					}
				}
			}
		}
	}
	return false
}

// has says whether one of these programs may have the choice, and whether these are compatible.
func has(p Program, limit, sender Traits, trait string) bool {
	name, value, _ := strings.Cut(trait, "=")
	fits := func(d dimension, v string) bool {
		return slices.ContainsFunc(d.choices, func(c choice) bool { return c.value == v && (c.only == nil || c.only(limit, sender)) })
	}
	for _, d := range dimensions(p) {
		for _, t := range []Traits{limit, sender} {
			if v, ok := t[d.name]; ok && (!fits(d, v) || d.name == name && v != value) {
				return false
			}
		}
		if d.name == name && !fits(d, value) {
			return false
		}
	}
	return true
}

// A failure that needs only two choices shrinks to these two.
func TestShrink(t *testing.T) {
	for seed := range uint64(2000) {
		guilty := func(p Program) bool {
			return slices.ContainsFunc(p.Senders, func(s Traits) bool { return s["kind"] == "mptcp" && s["past"] == "reconnected" })
		}
		p := New(seed)
		if !guilty(p) {
			continue
		}
		small := Shrink(p, 1000, guilty)
		require.True(t, guilty(small))
		require.Len(t, small.Senders, 1)
		require.Equal(t, "user=somebody | kind=mptcp past=reconnected", small.String())
		require.Equal(t, p, New(seed), "the program itself is unchanged")
	}
}

func TestRefusedIsNotCovered(t *testing.T) {
	c := NewCoverage()
	p := New(3)
	kind := "kind=" + p.Senders[0]["kind"]
	c.Add(p, map[string]bool{kind: true})
	require.Zero(t, c.Traits[kind])
	require.Contains(t, c.String(), "refused it: "+kind+" 1")
	require.Equal(t, 1, c.Programs)
}

func TestKept(t *testing.T) {
	kept, err := Kept()
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, text := range []string{`{`, `{"senders": []}`, `{"senders": [{"kind": "udp", "life": "serves"}]}`} {
		_, err := Parse([]byte(text))
		require.Error(t, err, text)
	}
}
