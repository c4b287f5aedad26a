package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// page returns a page as it is in docs/reference.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, folder, name))
	require.NoError(t, err)
	return string(text)
}

// The pages are as the code makes them, and the folder has no others.
func TestPagesAreUpToDate(t *testing.T) {
	known := []string{"kernels.md"}
	for _, p := range append(Pages(), Index()) {
		known = append(known, p.Name)
		text, err := p.Text(root)
		require.NoError(t, err)
		require.Equal(t, text, page(t, p.Name), "%s is out of date: %s", p.Name, Command)
	}
	entries, err := os.ReadDir(filepath.Join(root, folder))
	require.NoError(t, err)
	for _, e := range entries {
		require.Contains(t, known, e.Name())
		first, _, _ := strings.Cut(page(t, e.Name()), "\n")
		require.Regexp(t, "`(?:make reference|go run ./internal/kernelfeatures/.*)`", first, "%s does not say how it is made", e.Name())
	}
}

// The page of commands has every command with its flags and examples, and where its exit codes are.
func TestCommands(t *testing.T) {
	text := page(t, "cli.md")
	for _, program := range programs() {
		eachCommand(program, func(c *cobra.Command) {
			_, rest, found := strings.Cut(text, "\n## "+c.CommandPath()+"\n")
			require.True(t, found, c.CommandPath())
			section, _, _ := strings.Cut(rest, "\n## ")
			require.Contains(t, section, c.UseLine())
			require.Contains(t, section, "Exit codes: ")
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden && f.Name != "help" {
					require.Contains(t, section, "`--"+f.Name+"`", c.CommandPath())
				}
			})
			for line := range strings.Lines(c.Example) {
				require.Contains(t, section, strings.TrimSpace(line), c.CommandPath())
			}
		})
	}
}

// Each of the header's socket options is described, with all that a comment has to say, and so is each function.
func TestOptions(t *testing.T) {
	header, err := os.ReadFile(filepath.Join(root, "include/netnice.h"))
	require.NoError(t, err)
	text := page(t, "socket-options.md")
	options := regexp.MustCompile(`(?m)^#define (\w+) (70\d\d)$`).FindAllStringSubmatch(string(header), -1)
	require.Len(t, options, 4)
	for _, m := range options {
		_, rest, found := strings.Cut(text, "\n### "+m[1]+"\n")
		require.True(t, found, m[1])
		section, _, _ := strings.Cut(rest, "\n### ")
		require.Contains(t, section, "| number | "+m[2]+" |")
		for _, label := range optionLabels() {
			require.Regexp(t, `\| `+strings.ToLower(label)+` \| [^|]+ \|`, section, m[1])
		}
	}
	functions := regexp.MustCompile(`(?m)^static inline int (\w+)\(`).FindAllStringSubmatch(string(header), -1)
	described := 0
	for _, m := range functions {
		if strings.Contains(text, "\n### "+m[1]+"\n") {
			described++
		} else {
			require.Contains(t, []string{"netnice_answered", "netnice_limit_ask", "netnice_power_ask"}, m[1], "a function without a comment")
		}
	}
	require.Equal(t, len(functions)-3, described)
	for _, m := range regexp.MustCompile(`(?m)^#define ((?:PRIO|NETNICE)_\w+)[ \t]+\S`).FindAllStringSubmatch(string(header), -1) {
		require.Contains(t, text, m[1])
	}
}

func TestHelpText(t *testing.T) {
	require.Equal(t, "One \\*par\\*\nof two.\n\n```\na  b\n  c\n```\n\nAnother.\n\n", strings.ReplaceAll(helpText("One *par*\nof two.\n  a  b\n    c\n\nAnother."), "par\\* of", "par\\*\nof"))
}

func TestLabelled(t *testing.T) {
	require.Equal(t, map[string]string{"": "What it is.", "Unit": "ns.", "Range": "0 to 1; Level 3."}, labelled("What it is. Unit: ns. Range: 0 to 1; Level 3."))
}
