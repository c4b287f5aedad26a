package shell

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/units"
)

func TestRewrite(t *testing.T) {
	at := func(rate string) string { return "NETNICE_AT='" + rate + "' netnice_at " }
	for line, want := range map[string]string{
		// the paper's
		"ftp ftp.foo.com @128Kbyte/sec": at("128Kbyte/sec") + "ftp ftp.foo.com",
		// pipelines, lists, jobs
		"curl a @1MB/s | tar x":             at("1MB/s") + "curl a | tar x",
		"tar c . | ssh b 'cat >x' @1MB/s":   "tar c . | " + at("1MB/s") + "ssh b 'cat >x'",
		"a @1M | b @2M":                     at("1M") + "a | " + at("2M") + "b",
		"a @1M && b @2M || c; d @3M&":       at("1M") + "a && " + at("2M") + "b || c; " + at("3M") + "d&",
		"a|&b @1M":                          "a|&" + at("1M") + "b",
		"(cd x; wget y @1M)":                "(cd x; " + at("1M") + "wget y)",
		"for i in 1 2; do get $i @1M; done": "for i in 1 2; do " + at("1M") + "get $i; done",
		"if a @1M; then b; else c @2M; fi":  "if " + at("1M") + "a; then b; else " + at("2M") + "c; fi",
		"! a @1M":                           "! " + at("1M") + "a",
		"time a @1M":                        "time " + at("1M") + "a",
		"{ a @1M; }":                        "{ " + at("1M") + "a; }",
		// assignments, redirections, comments
		"A=b LANG=C a @1M":       "A=b LANG=C " + at("1M") + "a",
		"a @1M >out 2>&1":        at("1M") + "a >out 2>&1",
		"a >out @1M":             at("1M") + "a >out",
		"a < in >> out 2>&1 @1M": at("1M") + "a < in >> out 2>&1",
		"a &>out @1M":            at("1M") + "a &>out",
		">out a @1M":             ">out " + at("1M") + "a",
		"a @1M # slowly @2M":     at("1M") + "a # slowly @2M",
		// quoting
		`a "x; y" 'z @1M' @2M`:     at("2M") + `a "x; y" 'z @1M'`,
		`a b\ c @1M`:               at("1M") + `a b\ c`,
		`a $(b | c @1M) @2M`:       at("2M") + `a $(b | c @1M)`,
		"a `b @1M` @2M":            at("2M") + "a `b @1M`",
		`a "$(b "c)" )" @1M`:       at("1M") + `a "$(b "c)" )"`,
		`a <(b @1M) @2M`:           at("2M") + `a <(b @1M)`,
		`x=(a b); c "${x[@]}" @1M`: `x=(a b); ` + at("1M") + `c "${x[@]}"`,
		`"my program" a @1M`:       at("1M") + `"my program" a`,
		// the shell itself
		"@1MB/s":   "command netnice $$ '1MB/s'",
		"@none":    "command netnice $$ 'none'",
		" @1MB/s ": " command netnice $$ '1MB/s' ",
		// words like others
		`a \@1M`:         `a \@1M`,
		`a '@1M'`:        `a '@1M'`,
		`a "@1M"`:        `a "@1M"`,
		`a @1M b`:        `a @1M b`,
		`mail bob @home`: `mail bob @home`,
		`ssh bob@1MB/s`:  `ssh bob@1MB/s`,
		// several lines
		"for i in 1 2\ndo\n\tget $i @1M\ndone": "for i in 1 2\ndo\n\t" + at("1M") + "get $i\ndone",
		"a 'b\nc' @1M":                         at("1M") + "a 'b\nc'",
		"a \\\n  b \\\n  @1M\nc":               at("1M") + "a \\\n  b\nc",
		"a <<E @1M":                            at("1M") + "a <<E",
		"a <<'E' @1M\nb @2M\nE\nc @3M":         at("1M") + "a <<'E'\nb @2M\nE\n" + at("3M") + "c",
		"a <<-E <<F\n\tE\nb @1M\nF\nc @2M":     "a <<-E <<F\n\tE\nb @1M\nF\n" + at("2M") + "c",
		"a # b @1M\nc @2M":                     "a # b @1M\n" + at("2M") + "c",
		// left alone
		`a 'b @1M`:              `a 'b @1M`,
		`a $(b @1M`:             `a $(b @1M`,
		"a <<E\nb @1M":          "a <<E\nb @1M",
		"npm i @3d/view":        "npm i @3d/view",
		"date -d @1767222000":   "date -d @1767222000",
		"date -d @1767222000.5": "date -d @1767222000.5",
		"# a @1M":               "# a @1M",
		"a; @1M":                "a; @1M",
		"no rate at all":        "no rate at all",
		"":                      "",
	} {
		for _, d := range []Dialect{Bash, Zsh} {
			got, err := Rewrite(line, d)
			require.NoError(t, err, line)
			require.Equal(t, want, got, line)
		}
	}
}

func TestRewriteFish(t *testing.T) {
	for line, want := range map[string]string{
		"ftp ftp.foo.com @128Kbyte/sec": "netnice_at '128Kbyte/sec' ftp ftp.foo.com",
		"a (b; c @1M) @2M":              "netnice_at '2M' a (b; c @1M)",
		"a @1M; and b @2M":              "netnice_at '1M' a; and netnice_at '2M' b",
		"a @1M | b &":                   "netnice_at '1M' a | b &",
		`a 'it\'s' @1M`:                 `netnice_at '1M' a 'it\'s'`,
		"a ^err 2>x @1M":                "netnice_at '1M' a ^err 2>x",
		"@1M":                           "command netnice $fish_pid '1M'",
		`a \@1M`:                        `a \@1M`,
		"a ` @1M":                       "netnice_at '1M' a `",
	} {
		got, err := Rewrite(line, Fish)
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
}

// A command with a word that was meant as a rate and is none does not run without a limit.
func TestRewriteRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"a @10":                "has no unit",
		"a @10mbps":            "",
		"a @1,5MB/s":           "not a comma",
		"a @1M; b @5XB/s":      "",
		"@10":                  "has no unit",
		"a\nb @20000000 | c":   "has no unit",
		"for i in 1; do\na @3": "has no unit",
	} {
		for _, d := range Dialects() {
			got, err := Rewrite(line, d)
			var parse *units.ParseError
			require.ErrorAs(t, err, &parse, line)
			require.Contains(t, err.Error()+parse.Remedy, want, line)
			require.Empty(t, got)
		}
	}
}

func TestInit(t *testing.T) {
	for name, d := range Dialects() {
		text := Init(d)
		require.Contains(t, text, "netnice shell-line "+name)
		require.Contains(t, text, function)
	}
}

// A rewritten line has all of the typed line but its rates, and a line without rates stays as it is.
func FuzzRewrite(f *testing.F) {
	for _, line := range []string{"a @1M", `a "$(b 'c' @2M)" > d @1M # e`, "@1M", "a <(b) `c` \\@1M", "for i in x; do a @1M; done &", "<<\n\n@0"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, d := range Dialects() {
			got, err := Rewrite(line, d)
			if err != nil {
				continue
			}
			if !strings.Contains(got, "netnice") && got != line {
				t.Fatalf("%q became %q", line, got)
			}
			rest := strings.NewReplacer("NETNICE_AT=", "", function, "", "command netnice", "").Replace(got)
			for _, c := range line {
				if strings.ContainsRune(" \t@'$", c) {
					continue
				}
				if strings.Count(rest, string(c)) < strings.Count(line, string(c)) && !strings.Contains(line, "netnice") && !strings.Contains(line, "NETNICE") {
					t.Fatalf("%q lost %q: %q", line, c, got)
				}
			}
		}
	})
}
