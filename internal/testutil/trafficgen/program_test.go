package trafficgen

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// all lists each choice, as Coverage names them.
func all() (list []string) {
	for _, dims := range [][]dimension{limits, senders} {
		for _, d := range dims {
			for _, c := range d.choices {
				if t := strings.TrimSuffix(d.name, "2") + "=" + c.value; !slices.Contains(list, t) {
					list = append(list, t)
				}
			}
		}
	}
	return list
}

func TestASeedIsAProgram(t *testing.T) {
	for seed := range uint64(200) {
		p := New(seed)
		require.Equal(t, p, New(seed))
		require.True(t, p.valid(), "%v", p)
		require.NotEmpty(t, p.String())
	}
	require.NotEqual(t, New(1).Senders, New(2).Senders)
}

// Each choice is in one of a hundred programs at least, and each compatible pair is in some of 20,000.
func TestCoverage(t *testing.T) {
	const count = 20_000
	c := NewCoverage()
	for seed := range uint64(count) {
		c.Add(New(seed), nil)
	}
	t.Log(c)
	for _, trait := range all() {
		require.GreaterOrEqual(t, c.Traits[trait], count/100, trait)
	}
	// Two choices of one dimension cannot be together, nor two that `only` keeps apart.
	fit := 0
	for i, a := range all() {
		for _, b := range all()[i+1:] {
			x, y := a, b
			if x > y {
				x, y = y, x
			}
			if c.Pairs[[2]string{x, y}] > 0 {
				fit++
			} else if together(x, y) {
				t.Errorf("%s and %s were never together", x, y)
			}
		}
	}
	require.Equal(t, len(c.Pairs), fit)
}

// together says whether some program may have both choices: it tries each dimension with all that they may depend
// on.
func together(a, b string) bool {
	name := func(t string) string { n, _, _ := strings.Cut(t, "="); return n }
	if name(a) == name(b) && name(a) != "option" || a == "call=zerocopy" && b == "option=md5_full" {
		return false
	}
	for _, user := range []string{"somebody", "root"} {
		for _, subject := range []string{"pid", "cgroup", "user"} {
			for _, when := range []string{"before", "connected", "sending"} {
				for _, then := range []string{"stays", "lower", "again"} {
					for _, kind := range senders[0].choices {
						for _, life := range senders[2].choices {
							limit := Traits{"user": user, "subject": subject, "when": when, "then": then}
							sender := Traits{"kind": kind.value, "life": life.value}
							if has(limit, sender, a) && has(limit, sender, b) {
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
func has(limit, sender Traits, trait string) bool {
	name, value, _ := strings.Cut(trait, "=")
	fits := func(d dimension, v string) bool {
		return slices.ContainsFunc(d.choices, func(c choice) bool { return c.value == v && (c.only == nil || c.only(limit, sender)) })
	}
	for _, dims := range [][]dimension{limits, senders} {
		for _, d := range dims {
			for _, t := range []Traits{limit, sender} {
				if v, ok := t[d.name]; ok && (!fits(d, v) || d.name == name && v != value) {
					return false
				}
			}
			if d.name == name && !fits(d, value) {
				return false
			}
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
