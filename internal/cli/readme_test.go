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
	"github.com/netnice/netnice/internal/testutil"
)

// A reader of README.md and of docs/guide types the commands there. These tests read them as the command line, make, man
// and the rules would. TestFirstDay runs those of README.md and of the guide's list, and internal/e2e TestGuide the
// console blocks of all pages.

const project = "../../"

// The guide's list of commands, and the page whose commands show errors.
const commandList, messagesPage = "docs/guide/README.md", "docs/guide/troubleshooting.md"

var (
	aSpan     = regexp.MustCompile("`([^`]+)`")
	aTarget   = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	aManual   = regexp.MustCompile(`\bman (?:([1-8]) )?([a-z][a-z.]*)`)
	aFile     = regexp.MustCompile(`^[a-z]+(?:/[A-Za-z0-9_.-]+)+$`)
	anOption  = regexp.MustCompile(`(TCP_(?:SND|RCV)RATE)\W+\(?(\d+)\)`)
	aNumber   = regexp.MustCompile(`IPPROTO_TCP, (\d+)`)
	aGoNeeded = regexp.MustCompile(`Go (\d+\.\d+)`)
)

// document is README.md or a page of docs/guide.
type document struct {
	path   string // below the project
	text   string
	blocks []testutil.Block
	prose  string // the lines outside of the blocks
}

// documents returns README.md and the pages of docs/guide.
func documents(t *testing.T) (list []document) {
	t.Helper()
	pages, err := filepath.Glob(project + "docs/guide/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, path := range append([]string{project + "README.md"}, pages...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		d := document{path: strings.TrimPrefix(path, project), text: string(text)}
		d.blocks, d.prose = testutil.Blocks(d.text)
		require.NotEmpty(t, d.blocks, d.path)
		list = append(list, d)
	}
	return list
}

// blockText returns the text of all blocks.
func (d document) blockText() string {
	var all strings.Builder
	for _, b := range d.blocks {
		all.WriteString(b.Text)
	}
	return all.String()
}

// commands returns the lines of a document's blocks that call netnice, without prompts.
func (d document) commands() (found []string) {
	for _, b := range d.blocks {
		lines := strings.Split(b.Text, "\n")
		switch b.Kind {
		case "console":
			lines = nil
			for _, c := range testutil.Commands(b) {
				lines = append(lines, c.Text)
			}
		case "sh":
		default:
			continue
		}
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimPrefix(line, "sudo "), "netnice ") {
				found = append(found, line)
			}
		}
	}
	return found
}

// ReadmeCommands returns the commands of README.md, and of the guide's list.
func ReadmeCommands(t *testing.T) (found []string) {
	t.Helper()
	for _, d := range documents(t) {
		if d.path == "README.md" || d.path == commandList {
			commands := d.commands()
			require.Greater(t, len(commands), 7, d.path)
			found = append(found, commands...)
		}
	}
	require.Greater(t, len(found), 40)
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

// Every command in README.md and the guide, also in their sentences, exists, has the flags that are named, and takes their
// values.
func TestReadmeCommands(t *testing.T) {
	inSentences, inBlocks := 0, 0
	for _, d := range documents(t) {
		for _, span := range spans(d.prose) {
			inSentences += checkRemedy(t, d.path, span, true)
		}
		if d.path == messagesPage {
			continue // some of its commands are wrong
		}
		for _, line := range d.commands() {
			command, _, _ := strings.Cut(line, "  #")
			inBlocks += checkRemedy(t, d.path, command, true)
		}
	}
	require.Greater(t, inSentences, 25)
	require.Greater(t, inBlocks, 120)
}

// README.md and the pages keep their form: a reader sees the command first, and how to undo it last.
func TestGuidePages(t *testing.T) {
	index, err := os.ReadFile(project + commandList)
	require.NoError(t, err)
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.Kind == "console" {
				require.NotEmpty(t, testutil.Commands(b)[0].Text, "%s:%d: a console block begins with a command", d.path, b.Line)
			}
		}
		lines := strings.Count(d.text, "\n")
		switch d.path {
		case "README.md":
			require.LessOrEqual(t, lines, 150)
			continue
		case commandList:
		default:
			require.Contains(t, string(index), "]("+filepath.Base(d.path)+")")
			require.Equal(t, "console", d.blocks[0].Kind, "%s begins with a command", d.path)
			require.LessOrEqual(t, d.blocks[0].Line, 6, "%s begins with a command", d.path)
			_, undo, found := strings.Cut(d.text, "\n## Undo")
			require.True(t, found, "%s ends with how to undo it", d.path)
			require.NotContains(t, undo, "\n## ", d.path)
			require.Contains(t, undo, "```console\n", d.path)
		}
		most := 120
		if strings.HasSuffix(d.path, "troubleshooting.md") {
			most = 130 // it is searched, not read
		}
		require.True(t, 40 <= lines && lines <= most, "%s: %d lines", d.path, lines)
	}
}

// Documents have sentences of at most mostWords words. Pages from before that rule still have as many longer ones as the
// other constants say. A constant is lowered when some were split, and never raised.
const (
	mostWords        = 25
	longDecisions    = 419 // docs/decisions/*.md
	longMeasurements = 140 // docs/MEASUREMENTS.md
	longLab          = 71  // lab/README.md
)

var (
	aRemark   = regexp.MustCompile(`(?s)<!--.*?-->`)
	anAddress = regexp.MustCompile(`\]\([^)]*\)`)
	aHeading  = regexp.MustCompile(`(?m)^#+ .*$`)
	aListMark = regexp.MustCompile(`(?m)^\s*(?:[-*]|\d+\.) `)
	aSentence = regexp.MustCompile(`[.?!][)"*_]*(?:\s|$)|\n\s*\n`) // the end of one
)

// sentencesOf returns the sentences of a document, each part that is set as code as one word. Tables, blocks of code,
// headings, remarks and the addresses of links are left out. A list's item is a sentence of its own.
func sentencesOf(markdown string) []string {
	_, prose := testutil.Blocks(markdown)
	var lines strings.Builder
	begins, isBlock := true, false // whether a block may begin: a line of code is indented, and stands after an empty one
	for line := range strings.Lines(prose) {
		isBlock = strings.HasPrefix(line, "    ") && (begins || isBlock)
		begins = !isBlock && strings.TrimSpace(line) == ""
		if isBlock || strings.HasPrefix(strings.TrimSpace(line), "|") {
			line = "\n"
		}
		lines.WriteString(line)
	}
	text := aRemark.ReplaceAllString(lines.String(), "")
	text = aSpan.ReplaceAllString(anAddress.ReplaceAllString(text, "]"), "code")
	text = aListMark.ReplaceAllString(aHeading.ReplaceAllString(text, "\n\n"), "\n\n")
	return aSentence.Split(text, -1)
}

// longSentences returns the sentences of a document that have too many words.
func longSentences(markdown string) (found []string) {
	for _, sentence := range sentencesOf(markdown) {
		if words := strings.Fields(sentence); len(words) > mostWords {
			found = append(found, strings.Join(words, " "))
		}
	}
	return found
}

// Sentences of the documents have at most mostWords words. docs/reference/cli.md has the texts of --help instead.
func TestSentences(t *testing.T) {
	older := map[string]int{"docs/decisions": longDecisions, "docs/MEASUREMENTS.md": longMeasurements, "lab/README.md": longLab}
	found, pages := make(map[string]int), 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "lab/*.md"} {
		paths, err := filepath.Glob(project + pattern)
		require.NoError(t, err)
		for _, path := range paths {
			name := strings.TrimPrefix(path, project)
			if name == "docs/reference/cli.md" {
				continue
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			pages++
			long := longSentences(string(text))
			if filepath.Dir(name) == "docs/decisions" {
				name = "docs/decisions"
			}
			if _, ok := older[name]; ok {
				found[name] += len(long)
				continue
			}
			for _, sentence := range long {
				t.Errorf("%s: a sentence of %d words, at most %d: split it: %s", name, len(strings.Fields(sentence)), mostWords, sentence)
			}
		}
	}
	require.Greater(t, pages, 70)
	for name, most := range older {
		if found[name] > most {
			t.Errorf("%s: %d sentences of more than %d words, at most %d: split those that you added, or as many others", name, found[name], mostWords, most)
		}
		if found[name] < most {
			t.Logf("%s: %d sentences of more than %d words: lower the constant from %d", name, found[name], mostWords, most)
		}
	}
}

// The sentences of a small document are those of its prose.
func TestSentencesOf(t *testing.T) {
	const text = "# A heading\n\nOne `a b. c` sentence; it\ngoes on: see [there](a b.md). Two (a.)\n\n- An item\n  goes on\n- Another.\n" +
		"| a | table |\n|---|---|\n\n1. First.\n2. Second <!-- a remark. -->\n\n    code here\n    more\n\n```\nA block.\n```\nIs it 1.5?\n"
	var got []string
	for _, s := range sentencesOf(text) {
		if words := strings.Join(strings.Fields(s), " "); words != "" {
			got = append(got, words)
		}
	}
	require.Equal(t, []string{"One code sentence; it goes on: see [there]", "Two (a", "An item goes on", "Another", "First", "Second", "Is it 1.5"}, got)
	require.Empty(t, longSentences(strings.Repeat("word ", mostWords)))
	require.Len(t, longSentences(strings.Repeat("word ", mostWords+1)), 1)
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
	for _, d := range documents(t) {
		check(d.path, strings.Join(d.commands(), "\n"))
	}
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
	blocks, prose := testutil.Blocks(text)
	commands := spans(prose)
	for _, b := range blocks {
		commands = append(commands, strings.Split(strings.TrimRight(b.Text, "\n"), "\n")...)
	}
	return commands
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

// The files, the targets of make, the man pages and the release of Go that README.md and the guide name exist.
func TestReadmeNames(t *testing.T) {
	makefile, err := os.ReadFile(project + "Makefile")
	require.NoError(t, err)
	module, err := os.ReadFile(project + "go.mod")
	require.NoError(t, err)
	targets, manuals, releases := 0, 0, 0
	for _, d := range documents(t) {
		names := spans(d.prose)
		for _, name := range names {
			if aFile.MatchString(name) {
				_, err := os.Stat(project + name)
				require.NoError(t, err, "%s names %s", d.path, name)
			}
		}
		for _, m := range aTarget.FindAllStringSubmatch(strings.Join(names, "\n")+"\n"+d.blockText(), -1) {
			require.Regexp(t, `(?m)^`+m[1]+`:.*## `, string(makefile), "%s names make %s", d.path, m[1])
			targets++
		}
		for _, m := range aManual.FindAllStringSubmatch(strings.Join(names, "\n"), -1) {
			pages, err := filepath.Glob(project + "docs/man/" + m[2] + ".[1-8]")
			require.NoError(t, err)
			require.NotEmpty(t, slices.DeleteFunc(pages, func(page string) bool { return !strings.HasSuffix(page, "."+m[1]) && m[1] != "" }), m[0])
			manuals++
		}
		for _, m := range aGoNeeded.FindAllStringSubmatch(d.text, -1) {
			require.Regexp(t, `(?m)^go `+regexp.QuoteMeta(m[1])+`\b`, string(module))
			releases++
		}
	}
	require.Greater(t, targets, 5)
	require.Greater(t, manuals, 4)
	require.NotZero(t, releases)
}

// The rules in the guide are valid, and the socket options there and in README.md are those of the header.
func TestReadmeRulesAndOptions(t *testing.T) {
	text, err := os.ReadFile(project + "include/netnice.h")
	require.NoError(t, err)
	header := string(text)
	parsed, options, numbers := 0, 0, 0
	var blocks strings.Builder
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.Kind != "toml" {
				continue
			}
			list, err := rules.Parse(d.path, []byte(b.Text), rules.Context{LookupUser: func(string) (uint32, error) { return 0, nil }})
			require.NoError(t, err)
			require.Len(t, list, strings.Count(b.Text, "[[rule]]"))
			parsed += len(list)
		}
		for _, m := range anOption.FindAllStringSubmatch(d.prose, -1) {
			require.Regexp(t, `#\s*define\s+`+m[1]+`\s+`+m[2]+`\b`, header)
			options++
		}
		for _, m := range aNumber.FindAllStringSubmatch(d.blockText(), -1) {
			require.Regexp(t, `\s`+m[1]+`\b`, header)
			numbers++
		}
		blocks.WriteString(d.blockText())
	}
	require.Greater(t, parsed, 3)
	require.Equal(t, 2+2, options, "both, in README.md and in the guide")
	require.NotZero(t, numbers)
	for _, name := range []string{"netnice_set(", "PRIO_NET", "NETNICE_TOTAL"} {
		require.Contains(t, blocks.String(), name)
		require.Contains(t, header, name)
	}
}
