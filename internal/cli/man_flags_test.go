package cli

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// roffMarks are the marks of fonts, quotes and macros in a man page, which leave its words.
var roffMarks = regexp.MustCompile(`(?m)^\.(?:[BIR]{1,2}|TP|PP|IP|RS|RE|EX|EE|SY|YS)\b *|\\f[BIRP]|"`)

// manWords returns the words of a man page, without fonts and line breaks.
func manWords(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	page := strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\~`, " ").Replace(string(text))
	return strings.Join(strings.Fields(roffMarks.ReplaceAllString(page, "")), " ")
}

// defaultInWords are defaults of flags as the man page writes them.
var defaultInWords = map[string]string{
	"-1": "of a process and of its running descendants", "33554432": "32 MiB", "1s": "each second",
}

// A flag that takes a value has the same name for that value in the man page as in --help, and its default stands there.
func TestManPageNamesValues(t *testing.T) {
	page := manWords(t, "../../docs/man/netnice.1") + " " + manWords(t, "../../docs/man/nlimit.1")
	app, _ := testApp()
	root := app.root()
	app.persistent(root)
	eachCommand(root, func(c *cobra.Command) {
		check := func(f *pflag.Flag) {
			value, _ := pflag.UnquoteUsage(f)
			if f.Hidden || value == "" { // a flag without a value is in TestManPage
				return
			}
			words := strings.ReplaceAll(regexp.QuoteMeta(value), `\|`, ` ?\| ?`)
			with := regexp.MustCompile(fmt.Sprintf(`(?i)--%s(?: ?[|,] ?--?[a-z-]+)*\[?[ =]\[?%s(?:\W|$)`, f.Name, words))
			if !with.MatchString(page) {
				near := regexp.MustCompile(`--`+f.Name+`\b.{0,30}`).FindAllString(page, 3)
				t.Errorf("%s --%s %s: the page has %q", c.CommandPath(), f.Name, value, near)
			}
			if f.DefValue == "[]" { // none
				return
			}
			if text := cmp.Or(defaultInWords[f.DefValue], f.DefValue); !strings.Contains(page, text) {
				t.Errorf("%s --%s: the page does not have the default %s", c.CommandPath(), f.Name, text)
			}
		}
		c.Flags().VisitAll(check)
	})
}
