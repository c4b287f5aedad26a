package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// process implements Facts with given values.
type process struct {
	program, parent Program
	uid             uint32
	command, cgroup string
	container       Container
}

func (p process) Program() Program { return p.program }
func (p process) Parent() Program  { return p.parent }
func (p process) UID() uint32      { return p.uid }
func (p process) Command() string  { return p.command }
func (p process) Cgroup() string   { return p.cgroup }

func (p process) Container() Container { return p.container }

func runs(path string) process {
	return process{program: Program{path, commOf(path[strings.LastIndex(path, "/")+1:])}}
}

func facts() []process {
	script := runs("/usr/bin/python3.11")
	script.program.Comm = "backup-of-every" // backup-of-everything, cut
	script.command = "python3 /usr/local/bin/backup-of-everything\n--all"
	bob := runs("/usr/bin/scp")
	bob.uid, bob.cgroup, bob.command = 1000, "/user.slice/user-1000.slice/run-1.scope", "scp -t /tmp"
	bob.parent = Program{"/usr/sbin/sshd", "sshd"}
	return []process{runs("/usr/bin/scp"), bob, script, {}}
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) // a Sunday

func names(list []*Rule) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

func TestConditions(t *testing.T) {
	all := facts()
	scp, bob, script := all[0], all[1], all[2]
	for _, c := range []struct {
		condition string
		of        process
		want      string // the condition that differs
	}{
		{"program = 'scp'", scp, ""},
		{"program = 'cp'", scp, "program"},
		{"program = 's?p'", scp, ""},
		{"program = '/usr/bin/scp'", scp, ""},
		{"program = '/bin/scp'", scp, "program"},
		{"program = '/usr/*/scp'", scp, ""},
		{"program = '/*/scp'", scp, "program"}, // * matches no slash
		{"program = ['x', 'scp']", scp, ""},
		{"program = 'backup-of-everything'", script, ""},
		{"program = 'backup-of-every'", script, ""},
		{"program = 'backup*'", script, ""},
		{"program = 'python3*'", script, ""},
		{"program = '/usr/local/bin/backup-of-everything'", script, "program"},
		{"user = 'bob'", bob, ""},
		{"user = 'bob'", scp, "user"},
		{"user = ['root', 'bob']", scp, ""},
		{"cgroup = '/user.slice'", bob, ""},
		{"cgroup = 'user.slice/user-1000.slice'", bob, ""},
		{"cgroup = '/user'", bob, "cgroup"},
		{"unit = 'run-1.scope'", bob, ""},
		{"unit = 'run-1'", bob, "unit"},
		{"unit = 'user.slice'", bob, ""},
		{"parent = 'sshd'", bob, ""},
		{"parent = '/usr/sbin/ssh?'", bob, ""},
		{"parent = 'cron'", bob, "parent"},
		{"command = 'scp -t*'", bob, ""},
		{"command = '*everything*--all'", script, ""}, // over lines
		{"command = 'scp'", bob, "command"},
		{"command = '*.py?'", script, "command"},
		{"program = 'scp'\nuser = 'bob'", bob, ""},
		{"program = 'scp'\nuser = 'bob'", scp, "user"},
		{"program = 'scp'\ndays = 'sun'", scp, ""},
		{"program = 'scp'\ndays = 'mon-sat'", scp, "time"},
	} {
		r := parse(t, "[[rule]]\nup = '1MB/s'\n"+c.condition)[0]
		require.Equal(t, c.want, r.Differs(c.of, noon), "%s of %+v", c.condition, c.of)
		// The index finds the same rules as a comparison with each rule.
		require.Equal(t, c.want == "", len(held(Compile([]*Rule{r}).Match(c.of, noon))) == 1, "%s of %+v", c.condition, c.of)
	}
}

func held(holding, _ []*Rule) []*Rule { return holding }

func TestHoldsIn(t *testing.T) {
	const condition = "[[rule]]\nprogram = 'x'\nup = '1MB/s'\n"
	for rest, in := range map[string]map[string]bool{
		"":                                       {"": true, "/a": true},
		"unit = 'x.service'":                     {"": false, "/a/x.service": true, "/a/x.service/b": true, "/a": false},
		"cgroup = '/a'":                          {"": false, "/a": true, "/a/b": true, "/ab": false},
		"cgroup = '/a'\nunit = ['x', 'y.scope']": {"/a": false, "/a/y.scope": true, "/x.service": false},
	} {
		r := parse(t, condition+rest)[0]
		for cgroup, want := range in {
			require.Equal(t, want, r.HoldsIn(cgroup), "%s in %q", rest, cgroup)
		}
	}
}

func TestContainerCondition(t *testing.T) {
	in := func(id string, names ...string) process {
		p := runs("/usr/bin/curl")
		p.container = Container{Names: names, ID: id}
		return p
	}
	id := strings.Repeat("0123456789abcdef", 4)
	web, box, nameless, outside := in(id, "web-1", "also"), in("", "box"), in(id), runs("/usr/bin/curl")
	for _, c := range []struct {
		condition string
		of        process
		want      string
	}{
		{"container = 'web-1'", web, ""},
		{"container = 'also'", web, ""},
		{"container = 'web'", web, "container"},
		{"container = 'web-*'", web, ""},
		{"container = ['x', 'web-?']", web, ""},
		{"container = 'web-*'", box, "container"},
		{"container = 'all'", box, ""},
		{"container = '*'", nameless, ""},
		{"container = 'all'", outside, "container"},
		{"container = '*'", outside, "container"},
		{"container = '0123456789ab'", nameless, ""},
		{"container = '0123456789ab'", web, ""},
		{"container = '0123'", web, "container"}, // too short for an id: a name
		{"container = 'web-*'\nprogram = 'wget'", web, "program"},
	} {
		r := parse(t, "[[rule]]\nup = '1MB/s'\n"+c.condition)[0]
		require.Equal(t, c.want, r.Differs(c.of, noon), "%s of %+v", c.condition, c.of.container)
		require.NotEmpty(t, r.Conditions())
	}
	destined := parse(t, "[[rule]]\nup = '1MB/s'\ncontainer = 'web'\nport = 443")[0]
	require.False(t, destined.Everybody(), "it is for processes of a container")
	require.False(t, destined.MayHoldFor(1000), "whose a container is, rules do not know")
}

func TestMatchProgram(t *testing.T) {
	for text, want := range map[string]bool{"curl": true, "cur?": true, "/usr/bin/curl": true, "/bin/curl": false, "wget": false, "curly": false} {
		matches, err := MatchProgram(text)
		require.NoError(t, err, text)
		require.Equal(t, want, matches(Program{"/usr/bin/curl", "curl"}), text)
	}
	for _, text := range []string{"", "bin/curl", "[a"} {
		_, err := MatchProgram(text)
		require.Error(t, err, text)
	}
}

func TestFirstMatchAndAlso(t *testing.T) {
	s := Compile(parse(t, `
[[rule]]
name = "also before"
user = "bob"
weight = 50
also = true
[[rule]]
name = "other"
program = "rsync"
up = "1MB/s"
[[rule]]
name = "first"
program = "scp"
up = "1MB/s"
[[rule]]
name = "second"
program = "s*"
up = "2MB/s"
[[rule]]
name = "also after"
program = "scp"
down = "2MB/s"
also = true
`))
	all := facts()
	require.Equal(t, "first also after", names(held(s.Match(all[0], noon))))
	require.Equal(t, "also before first also after", names(held(s.Match(all[1], noon))))
	require.Empty(t, held(s.Match(all[2], noon)))
	require.Equal(t, "second", names(held(s.Match(runs("/usr/bin/ssh"), noon))))
}

// The index changes nothing but the time that it takes.
func TestIndexIsALookAtEachRule(t *testing.T) {
	programs := []string{"a", "b", "/bin/a", "/x/*", "?", "a-name-of-more-than-15", "a-name-of-more-t"}
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for i := range rapid.IntRange(0, 8).Draw(t, "rules") {
			fmt.Fprintf(&text, "[[rule]]\nname = 'r%d'\nup = '1MB/s'\nalso = %t\n", i, rapid.Bool().Draw(t, "also"))
			if list := rapid.SliceOfN(rapid.SampledFrom(programs), 0, 3).Draw(t, "programs"); len(list) > 0 {
				fmt.Fprintf(&text, "program = ['%s']\n", strings.Join(list, "', '"))
			} else {
				text.WriteString("user = 'root'\n")
			}
		}
		list, err := Parse("f", []byte(text.String()), system)
		require.NoError(t, err)
		name := rapid.SampledFrom([]string{"a", "b", "c", "a-name-of-more-than-15"}).Draw(t, "name")
		p := process{
			program: Program{rapid.SampledFrom([]string{"/bin/", "/x/"}).Draw(t, "dir") + name, commOf(rapid.SampledFrom([]string{name, "b", "a-name-of-more-t"}).Draw(t, "comm"))},
			uid:     rapid.SampledFrom([]uint32{0, 1}).Draw(t, "uid"),
		}
		var want []*Rule
		found := false
		for _, r := range list {
			if r.Matches(p, noon) && (r.Also || !found) {
				want = append(want, r)
				found = found || !r.Also
			}
		}
		require.Equal(t, names(want), names(held(Compile(list).Match(p, noon))))
	})
}

func TestWindow(t *testing.T) {
	r := parse(t, "[[rule]]\nprogram = 'x'\nup = '1MB/s'\ntime = ['22:00-06:00', '12:00-12:30']\ndays = 'fri-sat'")[0]
	at := func(day, hour, minute int) time.Time { // day 20 is a Friday
		return time.Date(2026, 11, day, hour, minute, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		at   time.Time
		want bool
	}{
		{at(20, 5, 59), false}, // begins on Thursday
		{at(20, 11, 59), false},
		{at(20, 12, 0), true},
		{at(20, 12, 30), false},
		{at(20, 22, 0), true},
		{at(21, 5, 59), true},
		{at(21, 6, 0), false},
		{at(22, 5, 59), true}, // began on Saturday
		{at(22, 22, 0), false},
		{at(23, 5, 0), false},
	} {
		require.Equal(t, c.want, r.Active(c.at), "%v", c.at)
	}
}

// The phase changes when a rule begins or ceases to hold, and only then.
func TestPhase(t *testing.T) {
	place, err := time.LoadLocation("Europe/Berlin") // its clocks change on 25 October
	require.NoError(t, err)
	s := Compile(parse(t, `
[[rule]]
program = 'always'
up = '1MB/s'
[[rule]]
program = 'night'
up = '1MB/s'
time = '22:00-02:30'
[[rule]]
program = 'weekend'
up = '1MB/s'
days = 'sat-sun'
`))
	changes := 0
	state := func(at time.Time) (list []bool) {
		for _, r := range s.Rules() {
			list = append(list, r.Active(at))
		}
		return list
	}
	begin := time.Date(2026, 10, 19, 0, 0, 0, 0, place)
	for at := begin; at.Before(begin.AddDate(0, 0, 7)); at = at.Add(time.Minute) {
		next := at.Add(time.Minute)
		same := fmt.Sprint(state(at)) == fmt.Sprint(state(next))
		require.Equal(t, same, s.Phase(at) == s.Phase(next), "%v", at)
		if !same {
			changes++
		}
	}
	require.Equal(t, 2*7+2+2, changes, "nights, a weekend, and half an hour that comes twice")
}

func TestKey(t *testing.T) {
	key := func(text string) string { return parse(t, text)[0].Key() }
	a := key("[[rule]]\nprogram = 'x'\nup = '1MB/s'")
	require.Equal(t, a, key("\n\n[[rule]]\nprogram = 'x'\nup = '2MB/s'\nweight = 3"))
	require.NotEqual(t, a, key("[[rule]]\nprogram = 'y'\nup = '1MB/s'"))
	require.NotEqual(t, a, key("[[rule]]\nname = 'x'\nprogram = 'x'\nup = '1MB/s'"))
	require.NotEqual(t, a, key("[[rule]]\nprogram = 'x'\nup = '1MB/s'\nshare = 'all'"))
}

// manyRules returns n rules for programs, users, patterns and command lines.
func manyRules(t testing.TB, n int) *Set {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "[[rule]]\nup = '1MB/s'\n")
		switch i % 4 {
		case 0, 1:
			fmt.Fprintf(&text, "program = 'program-%d'\n", i)
		case 2:
			fmt.Fprintf(&text, "program = '/opt/*/program-%d'\nuser = 'bob'\n", i)
		case 3:
			fmt.Fprintf(&text, "command = '*--job=%d*'\n", i)
		}
	}
	list, err := Parse("f", []byte(text.String()), system)
	require.NoError(t, err)
	return Compile(list)
}

func BenchmarkMatch1000(b *testing.B) {
	s := manyRules(b, 1000)
	p := facts()[1]
	p.command = "scp -o BatchMode=yes backup@example.org:/srv/backup/2026-11-22.tar.zst /var/tmp/restore --progress"
	for b.Loop() {
		if len(held(s.Match(p, noon))) != 0 {
			b.Fatal("a rule matches")
		}
	}
}

// A pattern with stars and without question marks is matched piece by piece, with the same result.
func TestCommandPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,6}`).Draw(t, "pattern")
		line := rapid.StringMatching(`[ab]{0,8}`).Draw(t, "line")
		fast, err := newCommand(pattern)
		require.NoError(t, err)
		slow, err := newCommand(pattern + "?")
		require.NoError(t, err)
		require.Equal(t, slow.matches(line+"é"), fast.matches(line), "%q of %q", line, pattern)
	})
}

func TestUnitIsAPartOfAPath(t *testing.T) {
	for cgroup, want := range map[string]bool{
		"/x.service": true, "/a/x.service/b": true, "/ax.service": false, "/x.service2": false,
		"/ax.service/x.service": true, "": false, "/": false, "/a/x.service": true,
	} {
		require.Equal(t, want, hasUnit(cgroup, "x.service"), cgroup)
	}
}
