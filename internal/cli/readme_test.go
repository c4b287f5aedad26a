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
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/rules"
)

// A reader of README.md types its commands. These tests read them as the command line, make, man and the rules would;
// TestFirstDay runs them.

const project = "../../"

var (
	aLink     = regexp.MustCompile(`\]\(([^)#]+)[)#]`)
	aSpan     = regexp.MustCompile("`([^`]+)`")
	aTarget   = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	aManual   = regexp.MustCompile(`\bman (?:([1-8]) )?([a-z][a-z.]*)`)
	aFile     = regexp.MustCompile(`^[a-z]+(?:/[A-Za-z0-9_.-]+)+$`)
	anOption  = regexp.MustCompile(`(TCP_(?:SND|RCV)RATE)\W+\(?(\d+)\)`)
	aNumber   = regexp.MustCompile(`IPPROTO_TCP, (\d+)`)
	aGoNeeded = regexp.MustCompile(`Go (\d+\.\d+)`)
)

// Readme returns README.md: its fenced blocks, and the rest.
func Readme(t *testing.T) (blocks []string, prose string) {
	t.Helper()
	text, err := os.ReadFile(project + "README.md")
	require.NoError(t, err)
	var rest []string
	for i, part := range strings.Split(string(text), "\n```\n") {
		if i%2 == 0 {
			rest = append(rest, part)
		} else {
			blocks = append(blocks, part+"\n")
		}
	}
	require.NotEmpty(t, blocks)
	return blocks, strings.Join(rest, "\n")
}

// ReadmeCommands returns the lines of README.md's blocks that call netnice.
func ReadmeCommands(t *testing.T) []string {
	t.Helper()
	blocks, _ := Readme(t)
	var found []string
	for line := range strings.Lines(strings.Join(blocks, "")) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimPrefix(line, "sudo "), "netnice ") {
			found = append(found, line)
		}
	}
	require.Greater(t, len(found), 20)
	return found
}

// spans returns the parts of a text that are set as code, each on one line.
func spans(prose string) []string {
	var found []string
	for _, m := range aSpan.FindAllStringSubmatch(prose, -1) {
		found = append(found, strings.Join(strings.Fields(m[1]), " "))
	}
	return found
}

// Every command in README.md, also in its sentences, exists, has the flags that are named, and takes their values.
func TestReadmeCommands(t *testing.T) {
	_, prose := Readme(t)
	found := 0
	for _, span := range spans(prose) {
		found += checkRemedy(t, "README.md", span, true)
	}
	require.Greater(t, found, 10)
	for _, line := range ReadmeCommands(t) {
		command, _, _ := strings.Cut(line, "  #")
		checkRemedy(t, "README.md", command, true)
	}
}

// Commands in the documents have no unquoted ! and no unquoted pattern. An interactive shell replaces ! by a line of
// its history, even between double quotes, and zsh runs no command with a pattern that matches no file.
func TestExamplesSuitShells(t *testing.T) {
	quoted := regexp.MustCompile(`'[^']*'`)
	check := func(where, text string) {
		for line := range strings.Lines(text) {
			if command, _, _ := strings.Cut(line, " #"); strings.Contains(command, "netnice ") {
				require.False(t, strings.ContainsAny(quoted.ReplaceAllString(command, ""), "!*?["), "%s: %s", where, line)
			}
		}
	}
	check("README.md", strings.Join(ReadmeCommands(t), "\n"))
	app, _ := testApp()
	eachCommand(app.root(), func(c *cobra.Command) { check(c.CommandPath()+" --help", c.Example) })
	pages, err := filepath.Glob(project + "docs/man/*")
	require.NoError(t, err)
	for _, page := range pages {
		check(page, strings.Join(manExamples(t, page), "\n"))
	}
}

// manExamples returns the lines of a man page's examples.
func manExamples(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var found []string
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == ".EX" || line == ".EE":
			inside = line == ".EX"
		case inside:
			found = append(found, strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(dq`, `"`, `\e`, `\`, `\&`, "").Replace(line))
		}
	}
	return found
}

// The commands in the examples of the man pages are valid.
func TestManExamples(t *testing.T) {
	found := 0
	pages, err := filepath.Glob(project + "docs/man/*")
	require.NoError(t, err)
	for _, page := range pages {
		for _, line := range manExamples(t, page) {
			command, _, _ := strings.Cut(line, "  #")
			found += checkRemedy(t, filepath.Base(page), command, true)
		}
	}
	require.Greater(t, found, 5)
}

// documentCommands returns the parts that a document sets as code: those in its sentences, and the lines of its blocks.
func documentCommands(text string) []string {
	var prose strings.Builder
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = !inside
		case inside:
			lines = append(lines, strings.TrimRight(line, "\n"))
		default:
			prose.WriteString(line)
		}
	}
	return append(spans(prose.String()), lines...)
}

// The commands with flags in the other documents, and in the files that are installed, are valid.
func TestDocumentsNameCommands(t *testing.T) {
	found := 0
	check := func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		if filepath.Ext(path) == ".md" {
			lines = documentCommands(string(text))
		}
		for _, line := range lines {
			line = strings.ReplaceAll(line+"`", "`", " "+blank+" ") // the value of a last flag may be left out
			found += checkRemedy(t, path, line, false)
		}
		return nil
	}
	for _, dir := range []string{"contrib", "examples", "docs/decisions", "docs/internals", "docs/reference"} {
		require.NoError(t, filepath.WalkDir(project+dir, check))
	}
	documents, err := filepath.Glob(project + "*.md")
	require.NoError(t, err)
	for _, dir := range []string{"docs", "lab", "lab/*"} {
		more, err := filepath.Glob(project + dir + "/*.md")
		require.NoError(t, err)
		documents = append(documents, more...)
	}
	for _, document := range documents {
		info, err := os.Stat(document)
		require.NoError(t, err)
		require.NoError(t, check(document, fs.FileInfoToDirEntry(info), nil))
	}
	require.Greater(t, found, 20)
}

// The files, the targets of make, the man pages and the release of Go that README.md names exist.
func TestReadmeNames(t *testing.T) {
	blocks, prose := Readme(t)
	all := prose + strings.Join(blocks, "")
	names := spans(prose)
	for _, m := range aLink.FindAllStringSubmatch(prose, -1) {
		_, err := os.Stat(project + m[1])
		require.NoError(t, err, "README.md links to %s", m[1])
	}
	for _, name := range names {
		if aFile.MatchString(name) {
			_, err := os.Stat(project + name)
			require.NoError(t, err, "README.md names %s", name)
		}
	}
	makefile, err := os.ReadFile(project + "Makefile")
	require.NoError(t, err)
	targets := aTarget.FindAllStringSubmatch(strings.Join(names, "\n")+"\n"+strings.Join(blocks, ""), -1)
	require.Greater(t, len(targets), 5)
	for _, m := range targets {
		require.Regexp(t, `(?m)^`+m[1]+`:.*## `, string(makefile), "README.md names make %s", m[1])
	}
	manuals := aManual.FindAllStringSubmatch(strings.Join(names, "\n"), -1)
	require.NotEmpty(t, manuals)
	for _, m := range manuals {
		pages, err := filepath.Glob(project + "docs/man/" + m[2] + ".[1-8]")
		require.NoError(t, err)
		require.NotEmpty(t, slices.DeleteFunc(pages, func(page string) bool { return !strings.HasSuffix(page, "."+m[1]) && m[1] != "" }), m[0])
	}
	module, err := os.ReadFile(project + "go.mod")
	require.NoError(t, err)
	needed := aGoNeeded.FindStringSubmatch(all)
	require.NotNil(t, needed)
	require.Regexp(t, `(?m)^go `+regexp.QuoteMeta(needed[1])+`\b`, string(module))
}

// The rules in README.md are valid, and its socket options are those of the header.
func TestReadmeRulesAndOptions(t *testing.T) {
	blocks, prose := Readme(t)
	at := slices.IndexFunc(blocks, func(block string) bool { return strings.Contains(block, "[[rule]]") })
	require.GreaterOrEqual(t, at, 0)
	list, err := rules.Parse("README.md", []byte(blocks[at]), rules.Context{LookupUser: func(string) (uint32, error) { return 0, nil }})
	require.NoError(t, err)
	require.Len(t, list, strings.Count(blocks[at], "[[rule]]"))

	text, err := os.ReadFile(project + "include/netnice.h")
	require.NoError(t, err)
	header := string(text)
	options := anOption.FindAllStringSubmatch(prose, -1)
	require.Len(t, options, 1+1)
	for _, m := range options {
		require.Regexp(t, `#\s*define\s+`+m[1]+`\s+`+m[2]+`\b`, header)
	}
	numbers := aNumber.FindAllStringSubmatch(strings.Join(blocks, ""), -1)
	require.NotEmpty(t, numbers)
	for _, m := range numbers {
		require.Regexp(t, `\s`+m[1]+`\b`, header)
	}
	for _, name := range []string{"netnice_set(", "PRIO_NET", "NETNICE_TOTAL"} {
		require.Contains(t, strings.Join(blocks, ""), name)
		require.Contains(t, header, name)
	}
}
