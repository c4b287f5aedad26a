package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A wrong command in a remedy leads the user from one error to the next. These tests read remedies as the command line
// would: the subcommand exists, its flags exist, and their values are valid.

// blank stands in a remedy for a part that is known only when the remedy is printed.
const blank = "§"

var (
	aCommand      = regexp.MustCompile(`(sudo )?netnice ([a-z][a-z-]*)`)
	aPlaceholder  = regexp.MustCompile(`^[A-Z][A-Z-]*$|^\.\.\.$|` + blank)
	aVerb         = regexp.MustCompile(`%[-+#0-9.\[\]*]*[a-zA-Z]`)
	endOfSentence = `,.;:)"?`
)

// remedyRoot returns the root command with all its flags.
func remedyRoot() *cobra.Command {
	app, _ := testApp()
	root := app.root()
	app.persistent(root)
	return root
}

// checkRemedy parses each command that a text names, and returns how many there are. In a text other than a remedy,
// only words that begin with sudo, or have a flag right after the verb, are a command.
func checkRemedy(t *testing.T, where, text string, isRemedy bool) (found int) {
	t.Helper()
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		at := aCommand.FindAllStringSubmatchIndex(line, -1)
		for i, m := range at {
			end := len(line)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			word, rest := line[m[4]:m[5]], strings.Fields(line[m[5]:end])
			isSure := isRemedy || m[2] >= 0 || len(rest) > 0 && strings.HasPrefix(rest[0], "--")
			if !isSure || word == "on" { // "run netnice on the machine itself"
				continue
			}
			if m[5] < len(line) && line[m[5]] == ':' { // a subject: netnice name:curl 1MB/s
				continue
			}
			found++
			checkWords(t, where+": "+line, word, rest)
		}
	}
	return found
}

// checkWords checks the command, the subcommand and the flags among words. Other words may be of the sentence around.
func checkWords(t *testing.T, where, name string, words []string) {
	t.Helper()
	cmd := commandNamed(remedyRoot(), name)
	if cmd == nil {
		t.Errorf("%s: there is no command netnice %s", where, name)
		return
	}
	if len(words) > 0 {
		if inner := commandNamed(cmd, strings.TrimRight(words[0], endOfSentence)); inner != nil {
			cmd, words = inner, words[1:]
		}
	}
	cmd.InitDefaultHelpFlag()
	for i, word := range words {
		word = strings.TrimRight(word, endOfSentence)
		if word == "--" {
			return // the rest is for another program
		}
		text, isFlag := strings.CutPrefix(word, "--")
		if !isFlag || strings.Contains(text, blank) {
			continue
		}
		flag, value, given := strings.Cut(text, "=")
		f := lookUpFlag(cmd, flag)
		switch {
		case f == nil:
			t.Errorf("%s: %s has no flag --%s", where, cmd.CommandPath(), flag)
			continue
		case !given && (f.NoOptDefVal != "" || strings.HasSuffix(words[i], ",")):
			continue // a switch, or a flag in a list of flags
		case !given && i+1 < len(words):
			value = strings.TrimRight(words[i+1], `,;:)"`)
		}
		if aPlaceholder.MatchString(value) {
			continue
		}
		if value == "" || strings.HasPrefix(value, "--") {
			t.Errorf("%s: --%s has no value", where, flag)
		} else if err := f.Value.Set(strings.Trim(value, "'")); err != nil {
			t.Errorf("%s: --%s %s: %v", where, flag, value, err)
		}
	}
}

func commandNamed(of *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(of.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		return nil
	}
	return of.Commands()[i]
}

func lookUpFlag(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}

// The answers to wrong use name valid commands.
func TestRemediesOfWrongUse(t *testing.T) {
	for _, c := range []struct{ args, remedy string }{
		{"set --user bob", "netnice set user:bob --up 10MB/s"},
		{"set --user bob --up 50%", "netnice show --link DEVICE"},
		{"run --up 1MB/s", "netnice run --up 10MB/s -- CMD ARGS"},
		{"run -- true", "netnice run --up 10MB/s -- CMD ARGS"},
		{"power 4711 abc", "netnice power 4711 25"},
		{"power --slots 1ms", "netnice power PID 40 --slots 1ms"},
		{"exec 30", "netnice exec 30 CMD ARGS"},
		{"exec much true", "netnice exec 30 CMD ARGS"},
		{"fair", "netnice fair --total 10MB/s 4711 4712"},
		{"fair --leave 4711=3", "netnice fair --leave 4711"},
		{"fair --leave 4711 --up 1MB/s", "netnice fair --group NAME --up RATE"},
		{"reserve --user bob --link eth0", "netnice reserve user:bob --link eth0 --period 10ms --slice 2ms"},
		{"reserve --user bob --release --slice 1ms", "netnice reserve user:bob --release"},
		{"reserve --user bob --grant 20%", "netnice reserve user:bob --link eth0 --grant 20%"},
		{"reserve --pid 4711 --cpu-slice 5ms", "netnice reserve --pid P --cpu-period 20ms --cpu-slice 5ms"},
		{"reserve --pid 4711 --rate 1mbit", "netnice reserve --pid P --rate 400mbit --cpu auto"},
		{"link eth0", "netnice link eth0 --rate 50mbit"},
		{"link eth0 --mpu 64", "netnice link eth0 --overhead 10 --atm"},
		{"adapt --share 30%", "netnice adapt 192.0.2.7 --share 30%"},
		{"adapt any,!10.0.0.0/8 maybe", "netnice adapt 'any,!10.0.0.0/8' off"},
		{"set --to any --except 10.0.0.0/8", "netnice set 'to:any,!10.0.0.0/8' --up 10MB/s"},
		{"probe 192.0.2.7 --listen [::]:7077", "netnice probe --reflect --listen '[::]:7077'"},
		{"adapt 192.0.2.7 maybe", "netnice adapt 192.0.2.7 off"},
		{"system --dry-run", "netnice system --input-meter=off --dry-run"},
		{"probe", "netnice probe example.net"},
		{"why 4711/5 --fd 5", "netnice why 4711 --fd 5"},
		{"ls --nosuch", "netnice ls --help"},
	} {
		t.Run(c.args, func(t *testing.T) {
			app, out := testApp()
			require.Contains(t, []int{exitUsage, exitNotRun}, app.Run(t.Context(), append([]string{"netnice"}, strings.Fields(c.args)...)), out)
			_, remedy, _ := strings.Cut(out.String(), "\n")
			require.Contains(t, remedy, c.remedy)
			require.NotZero(t, checkRemedy(t, c.args, remedy, true), "a command")
		})
	}
}

// Every remedy in the program, also those of the daemon and of the API, is a valid command.
func TestRemediesAreCommands(t *testing.T) {
	var sources []source
	for _, dir := range []string{"../../internal", "../../client", "../../api", "../../cmd"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			// packages for tests have no remedies
			if err == nil && d.IsDir() && !strings.HasSuffix(path, "test") && d.Name() != "testutil" && d.Name() != "testdata" {
				sources = append(sources, readSource(t, path))
			}
			return err
		}))
	}
	takers := remedyTakers(sources...)
	for _, name := range []string{"fail", "failWith", "wish", "bad", "refused", "problem", "Denied", "notFound", "badSubject", "noAccount", "distrusted", "Full"} {
		require.NotEmpty(t, takers[name], "%s takes a remedy", name)
	}
	found := map[string]int{}
	for _, s := range sources {
		found[s.folder] = checkSource(t, s, takers)
	}
	for _, folder := range []string{"cli", "daemon", "adaptation", "hostpath", "cpushare", "apiserver", "auth", "destinations", "doctor", "identity", "request", "rules", "stall", "bpf"} {
		require.NotZero(t, found[folder], "the remedies of %s are looked for where they are no more", folder)
	}
}

// checkSource finds the remedies at every place of a source, and the commands in other texts.
func TestRemediesAreFound(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(`package p

const hint = "netnice ls"

type problem struct{ Hint string }

func complain(message, remedy string) {}

func use() {
	complain("x", "netnice status")
	p := problem{Hint: "netnice up"}
	p.Hint = "netnice down"
}

func (problem) remedy() string { return "netnice doctor" }

func explain() (message, hint string) { return "x", "netnice rules list" }

var message = "say so (sudo netnice system --input-meter=off), or by netnice set --user bob; netnice is up"
`), 0o600))
	s := readSource(t, dir)
	require.Equal(t, 8, checkSource(t, s, remedyTakers(s)))
}
