package rules

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/limit"
)

func users(name string) (uint32, error) {
	switch name {
	case "bob", "1000":
		return 1000, nil
	case "root", "0":
		return 0, nil
	}
	return 0, fmt.Errorf("no user is called %q", name)
}

var system = Context{LookupUser: users}

func parse(t *testing.T, text string) []*Rule {
	t.Helper()
	list, err := Parse("netnice.toml", []byte(text), system)
	require.NoError(t, err)
	return list
}

func TestParse(t *testing.T) {
	list := parse(t, `
# comment
[[rule]]
name = "scp"
program = ["scp", "/usr/bin/sft*"]
user = ["bob", 0]
cgroup = "/sys/fs/cgroup/user.slice/"
unit = "backup"
parent = "cron"
command = "* -l ?"
time = "22:00-06:00"
days = ["mon-fri", "sun"]
up = "1MB/s"
down = "none"
weight = 50
share = "all"
also = true

[[rule]]
program = "x"
total = "10mbit"
`)
	require.Len(t, list, 2)
	r := list[0]
	require.Equal(t, "netnice.toml:3", r.Where())
	require.EqualValues(t, 1e6, *r.Limits.UpBytesPerSec)
	require.EqualValues(t, 0, *r.Limits.DownBytesPerSec)
	require.Nil(t, r.Limits.TotalBytesPerSec)
	require.EqualValues(t, 50, r.Limits.Weight)
	require.Equal(t, ShareAll, r.Share)
	require.True(t, r.Also)
	require.Equal(t, []string{
		"program scp or /usr/bin/sft*", "parent cron", "command * -l ?", "user bob or 0",
		"cgroup /user.slice", "unit backup.service", "time 22:00-06:00", "days mon-fri or sun",
	}, r.Conditions())
	require.Equal(t, "line 19", list[1].Name)
	require.EqualValues(t, 1_250_000, *list[1].Limits.TotalBytesPerSec)
	require.Equal(t, ShareEach, list[1].Share)
}

// A rule that adapts names hosts, and is no limit on a part of the traffic.
func TestParseAdapt(t *testing.T) {
	list := parse(t, "[[rule]]\nto = ['10.0.0.0/8', '!10.1.0.0/16']\nadapt = '30%'\nup = '1MB/s'\n[[rule]]\nto = '2001:db8::/32'\nprotocol = 'udp'\ntime = '08:00-09:00'\nadapt = true\n")
	require.True(t, list[0].Adapts())
	require.True(t, list[0].Everybody())
	require.EqualValues(t, 300_000, list[0].Limits.AdaptSharePPM)
	require.EqualValues(t, 500_000, list[1].Limits.AdaptSharePPM)
	prefixes, except := list[0].Reach()
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, prefixes)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, except)
	require.Empty(t, Compile(list).Destinations(time.Now()))

	_, err := Parse("f", []byte("[[rule]]\nto = '10.0.0.0/8'\nadapt = true\n"), Context{LookupUser: users, OfUser: true})
	require.ErrorContains(t, err, "only the administrator")

	many := strings.Repeat("'10.0.0.0/8', ", MostAdaptPrefixes+1)
	_, err = Parse("f", []byte("[[rule]]\nto = ["+many+"]\nadapt = true\n"), system)
	require.ErrorContains(t, err, "more than 64 prefixes")
}

// Every problem names its line and column and a remedy.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[[rule]\n", "netnice.toml:1:7: this is no TOML"},
		{"\nx = 1\nx = 2\nrule = 3", "this is no TOML"},
		{"[rule]\nprogram = 'x'", "netnice.toml:1:2: rule is one table"},
		{"colour = 1", `netnice.toml:1:1: there is no section or key "colour"`},
		{"[limits]\nx = 1", `netnice.toml:1:2: there is no section or key "limits"`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nspeed = 3", `netnice.toml:4:1: a rule has no key "speed"`},
		{"[[rule]]\nprogram = 'x'\nup = 1000", "netnice.toml:3:1: up is a number, not a text"},
		{"[[rule]]\nprogram = 'x'\n  up = '1000'", `netnice.toml:3:3: up: rate "1000"`},
		{"[[rule]]\nprogram = 'x'", "netnice.toml:1:3: the rule sets nothing"},
		{"[[rule]]\nprogram = 'x'\ndwon = '1MB/s'", "netnice.toml:3:1: a rule has no key \"dwon\""},
		{"[[rule]]\nup = '1MB/s'", "netnice.toml:1:3: the rule is for every process"},
		{"[[rule]]\ntime = '08:00-09:00'\nup = '1MB/s'", "the rule is for every process"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nto = 'example.org'", `netnice.toml:4:1: "example.org" is neither an address nor a prefix; names are not looked up`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nto = '10.0.0.1/8'", `netnice.toml:4:1: "10.0.0.1/8" has more bits than its length of 8: 10.0.0.0/8?`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nto = 'fe80::1%eth0'", "netnice.toml:4:1: "},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nto = '!10.0.0.0/8'", "netnice.toml:4:1: all of to is left out"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nport = 65536", `netnice.toml:4:1: "65536" is no port: they are 1 to 65535`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nport = '90-80'", `netnice.toml:4:1: the range "90-80" ends before it begins`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nport = 443\nalso = true", "netnice.toml:5:1: also has no meaning"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nport = 443\nweight = 50", "netnice.toml:5:1: weight has no meaning"},
		{"[[rule]]\nup = '1MB/s'\nport = 443\nshare = 'each'", "netnice.toml:4:1: without a process that is meant"},
		{"[[rule]]\nprogram = 'x'\nuser = 'eve'\nup = '1MB/s'", `netnice.toml:3:1: no user is called "eve"`},
		{"[[rule]]\nprogram = 'bin/x'\nup = '1MB/s'", `the path "bin/x" is not absolute`},
		{"[[rule]]\nprogram = 'x['\nup = '1MB/s'", `the pattern "x[" is not complete: \[ stands for the character itself`},
		{"[[rule]]\nprogram = []\nup = '1MB/s'", "program is an empty list"},
		{"[[rule]]\nprogram = [1]\nup = '1MB/s'", "program is a number, not a text"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nweight = 0", "a weight is a number from 1 to 10000"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nshare = 'some'", `share is "some"`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\nalso = 'yes'", "also is neither true nor false"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\ntime = '8-9'", `"8-9" is no span of a day`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\ntime = '25:00-26:00'", `is no span of a day`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\ntime = '09:00-09:00'", `is no span of a day`},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\ntime = 08:00:00", "time is a date or time"},
		{"[[rule]]\nprogram = 'x'\nup = '1MB/s'\ndays = 'mon-someday'", `"mon-someday" is no day of the week`},
		{"[[rule]]\ncgroup = '/sys/fs/cgroup'\nup = '1MB/s'", "the root cgroup is every process"},
		{"[[rule]]\nunit = 'a/b'\nup = '1MB/s'", `"a/b" is no unit's name`},
		{"[[rule]]\ncontainer = 'a/b'\nup = '1MB/s'", `netnice.toml:2:1: "a/b" is no container's name`},
		{"[[rule]]\ncontainer = ''\nup = '1MB/s'", `"" is no container's name`},
		{"[[rule]]\ncontainer = 'web[1'\nup = '1MB/s'", `the pattern "web[1" is not complete: \[ stands for the character itself`},
		{"[[rule]]\nto = '10.0.0.0/8'\ncontainer = 'web'\nadapt = true", "netnice.toml:3:1: container has no meaning beside adapt"},
		{"[[rule]]\nname = ''\nprogram = 'x'\nup = '1MB/s'", "a name has 1 to 64 characters"},
		{"[[rule]]\nto = '10.0.0.0/8'\nadapt = false", "netnice.toml:3:1: adapt is neither true nor a share"},
		{"[[rule]]\nto = '10.0.0.0/8'\nadapt = '5%'", "netnice.toml:3:1: adapt is neither true nor a share"},
		{"[[rule]]\nto = '10.0.0.0/8'\nadapt = '0.5'", "netnice.toml:3:1: adapt is neither true nor a share"},
		{"[[rule]]\nprotocol = 'udp'\nadapt = true", "netnice.toml:3:1: adapt does not say to whom"},
		{"[[rule]]\nto = '10.0.0.0/8'\nprotocol = 'tcp'\nadapt = true", "netnice.toml:3:1: adapt is not for TCP alone"},
		{"[[rule]]\nto = '10.0.0.0/8'\nport = 53\nadapt = true", "netnice.toml:3:1: port has no meaning beside adapt"},
		{"[[rule]]\nto = '10.0.0.0/8'\nprogram = 'x'\nadapt = true", "netnice.toml:3:1: program has no meaning beside adapt"},
		{"[[rule]]\nto = '10.0.0.0/8'\nadapt = true\ndown = '1MB/s'", "netnice.toml:4:1: down has no meaning beside adapt"},
		{"rule = [{program = 'x', up = '1'}]", `netnice.toml:1:1: up: rate "1"`},
	} {
		list, err := Parse("netnice.toml", []byte(c.text), system)
		require.Error(t, err, c.text)
		require.Nil(t, list)
		require.Contains(t, err.Error(), c.want)
		var problems Problems
		require.ErrorAs(t, err, &problems)
		for _, p := range problems {
			require.NotEmpty(t, p.Remedy, p.Error())
		}
	}
}

// Parse reports all problems at once, in the order of the file.
func TestProblemsAreAllTold(t *testing.T) {
	_, err := Parse("f", []byte("[[rule]]\nspeed = 1\nup = 'x'\n\n[[rule]]\nname = 'a'\nprogram = 'a'\nup = '1MB/s'\n[[rule]]\nname = 'a'\nprogram = 'b'\nup = '1MB/s'\n"), system)
	var problems Problems
	require.ErrorAs(t, err, &problems)
	var at []string
	for _, p := range problems {
		at = append(at, fmt.Sprintf("%d:%d", p.Line, p.Column))
	}
	require.Equal(t, []string{"2:1", "3:1", "10:1"}, at)
	require.Contains(t, problems[2].Message, "line 5 has a rule named")
}

func TestUsersOwnFile(t *testing.T) {
	mine := Context{OfUser: true, LookupUser: users}
	_, err := Parse("f", []byte("[[rule]]\nprogram = 'x'\nuser = 'bob'\nup = '1MB/s'\nweight = 200"), mine)
	require.ErrorContains(t, err, "f:3:1: a user's own rule names no user")
	require.ErrorContains(t, err, "f:5:1: only the administrator may raise a weight")
	_, err = Parse("f", []byte("[[rule]]\ncontainer = 'web'\nup = '1MB/s'"), mine)
	require.ErrorContains(t, err, "f:2:1: only the administrator's rules name containers")
	_, err = Parse("f", []byte("[[rule]]\nprogram = 'x'\nup = '1MB/s'\nweight = 100"), mine)
	require.NoError(t, err)
}

// Only the administrator may set guarantees for sent and received traffic.
func TestGuarantees(t *testing.T) {
	text := []byte("[[rule]]\nprogram = 'x'\nmin = '1MB/s'\nmin_down = '2MB/s'")
	list, err := Parse("f", text, system)
	require.NoError(t, err)
	require.Equal(t, Limits{MinBytesPerSec: 1e6, MinDownBytesPerSec: 2e6}, list[0].Limits)
	_, err = Parse("f", text, Context{OfUser: true, LookupUser: users})
	require.ErrorContains(t, err, "f:3:1: only the administrator may guarantee")
	require.ErrorContains(t, err, "f:4:1: only the administrator may guarantee")
}

// The cost of a user's own file to the daemon is bounded.
func TestUsersOwnFileIsBounded(t *testing.T) {
	mine := Context{OfUser: true, LookupUser: users}
	for text, want := range map[string]string{
		strings.Repeat("#", MaxUserBytes+1):                            "more than 64 KB",
		strings.Repeat(one, MaxUserRules+1):                            "more than 128 rules",
		one + "command = '" + strings.Repeat("?", 129) + "'":           "command has more than 128 bytes",
		one + "parent = [" + strings.Repeat("'a',", 129) + "]":         "parent has more than 128",
		strings.Replace(one, "[[rule]]", "[[rule]]\nname='\u202e'", 1): "a name has 1 to 64 characters",
	} {
		_, err := Parse("f", []byte(text), mine)
		require.ErrorContains(t, err, want)
	}
	// These are the most expensive rules that a file may have, for the longest command line that is read.
	worst := Compile(parseAs(t, mine, strings.Repeat("[[rule]]\nalso=true\nup='1MB/s'\ncommand='*"+strings.Repeat("?", 125)+"b*'\n", MaxUserRules)))
	p := facts()[0]
	p.command = strings.Repeat("a", 4096)
	began := time.Now()
	require.Empty(t, held(worst.Match(p, began)))
	t.Logf("%v", time.Since(began))
	require.Less(t, time.Since(began), 5*time.Second)
}

func parseAs(t *testing.T, in Context, text string) []*Rule {
	t.Helper()
	list, err := Parse("netnice.toml", []byte(text), in)
	require.NoError(t, err)
	return list
}

// slowly is the model of command.matches.
func slowly(pattern, line string) bool {
	l := []rune(line)
	reach := make([]bool, len(l)+1) // lengths of l that the pattern so far matches
	reach[0] = true
	for _, c := range pattern {
		next := make([]bool, len(l)+1)
		for i := range reach {
			switch {
			case c == '*':
				next[i] = reach[i] || i > 0 && next[i-1]
			case i > 0 && reach[i-1]:
				next[i] = c == '?' || c == l[i-1]
			}
		}
		reach = next
	}
	return reach[len(l)]
}

// Any text without valid TOML, or without valid rules, gives an error about the file.
func FuzzParse(f *testing.F) {
	f.Add("[[rule]]\nprogram = 'x'\nup = '1MB/s'\n", "x")
	f.Add("[[rule]]\nname=\"a\"\nprogram=[\"a\",\"/b/*\"]\nuser=1000\ntime=\"22:00-06:00\"\ndays=\"sat-mon\"\ntotal=\"3mbit\"\nalso=true\nshare=\"all\"", "")
	f.Add("rule = [{program='x', up='1MB/s'}]", "a b c")
	f.Add("[rule.x]\n[[rule.y]]\n", "")
	f.Add("[[rule]]\nto.x = 1\n", "")
	f.Add("[[rule]]\ncommand = ['*b?c*d', '?*']\nup = '1MB/s'\n", "abxcyd")
	f.Add(`# /etc/netnice/netnice.toml
[[rule]]
name = "backups at day"
program = ["rsync", "borg"]
user = "bob"
time = "08:00-18:00"
days = "mon-fri"
total = "20mbit"
share = "all"              # together

[[rule]]
name = "web, but at home"
to = ["0.0.0.0/0", "::/0", "!192.168.0.0/16"]
port = [80, 443]
down = "5MB/s"

[[rule]]
name = "paths"
to = ["0.0.0.0/0", "!192.168.0.0/16"]
protocol = "udp"
adapt = "30%"
`, "rsync -a /home/bob/photos backup:\n--bwlimit=0")
	f.Add("[[rule]]\ncgroup = \"/user.slice/*\"\nunit = \"cron.service\"\nparent = \"sshd\"\nweight = 10000\nmin = \"1kB/s\"\nalso = true\n", "/../user.slice/a\r")
	f.Add("\ufeff[[rule]]\r\nprogram = '''x\r\n'''\r\nup = \"0x10\"\r\n", "\xff")
	f.Fuzz(func(t *testing.T, text, line string) {
		for _, ofUser := range []bool{false, true} {
			list, err := Parse("f", []byte(text), Context{OfUser: ofUser, LookupUser: users})
			if err != nil {
				var problems Problems
				require.ErrorAs(t, err, &problems)
				require.NotEmpty(t, problems)
				for _, p := range problems {
					require.True(t, p.Line > 0 && p.Column > 0 && p.Remedy != "", "%+v", p)
					require.LessOrEqual(t, p.Line, strings.Count(text, "\n")+2)
				}
				require.Nil(t, list)
				continue
			}
			s := Compile(list)
			at := time.Date(2026, 11, 22, 23, 30, 0, 0, time.UTC)
			own := facts()[0]
			own.command = line
			named := runs("/tmp/" + line) // a user controls this path, and the cgroup
			named.cgroup = "/user.slice/" + line
			for _, p := range append(facts(), own, named) {
				holding, destined := s.Match(p, at)
				for _, r := range append(holding, destined...) {
					require.Empty(t, r.Differs(p, at))
				}
			}
			s.Phase(at)
			for _, d := range s.Destinations(at) {
				require.LessOrEqual(t, len(d.Rules), MostPerDestination)
				require.Equal(t, d.Prefix.Masked(), d.Prefix)
			}
			for _, r := range list {
				require.NotEmpty(t, r.Conditions())
				require.NotEmpty(t, r.Key())
				if ofUser {
					require.Empty(t, r.users)
					require.LessOrEqual(t, r.Limits.Weight, uint32(limit.DefaultWeight))
				}
				for _, c := range r.commands {
					if pattern := strings.Join(c.pieces, "*"); len(pattern)*len(line) < 1<<16 {
						require.Equal(t, slowly(pattern, strings.ToValidUTF8(line, "x")), c.matches(strings.ToValidUTF8(line, "x")), "%q of %q", line, pattern)
					}
				}
			}
		}
	})
}

// The man page has every key.
func TestManPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/man/netnice.toml.5")
	require.NoError(t, err)
	for _, key := range keysOfRule() {
		require.Regexp(t, regexp.MustCompile(`(?m)^\.BR? .*\b`+key+`\b`), string(text))
	}
}

// Rates that people may read in another way are in force, and have a note with their position.
func TestNotedRates(t *testing.T) {
	list := parse(t, "[[rule]]\nprogram = 'x'\nup = '10M'\ndown = '1B/s'\nmin = '1B/s'\n[[rule]]\nprogram = 'y'\nup = '10MB/s'\n")
	require.Equal(t, Problems{
		{File: "netnice.toml", Line: 3, Column: 1, Message: "up: 10M = 10.5 MB/s; for bits 10mbit"},
		{File: "netnice.toml", Line: 4, Column: 1, Message: "down: 1B/s is less than 1 kB/s, at which hardly anything gets through; did you mean 1MB/s?"},
	}, list[0].Notes)
	require.EqualValues(t, 10<<20, *list[0].Limits.UpBytesPerSec)
	require.Empty(t, list[1].Notes)
}

// The rules that the packages install as an example have no mistake.
func TestExampleRules(t *testing.T) {
	text, err := os.ReadFile("../../examples/rules/netnice.toml")
	require.NoError(t, err)
	list := parse(t, string(text))
	require.Len(t, list, strings.Count(string(text), "[[rule]]"))
	require.Greater(t, len(list), 4)
}
