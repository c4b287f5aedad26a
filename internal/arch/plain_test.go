package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Comments are plain: a sentence names its subject first. These bounds are for all of them.
const (
	mostUnclearPercent = 1.0
	leastSentences     = 10_430 // nine tenths of those that were there when the comments were rewritten
)

var (
	// commentLine is a line of a comment; insideBlock is one of a comment that began before.
	commentLine = regexp.MustCompile(`^\s*(?://|/\*+)\s?(.*?)(?:\*/)?\s*$`)
	insideBlock = regexp.MustCompile(`^\s*\*?\s?(.*?)(?:\*/)?\s*$`)
	directive   = regexp.MustCompile(`^\s*//(?:go:|nolint)|SPDX`)
	// sentenceEnd is where a sentence ends within a comment.
	sentenceEnd = regexp.MustCompile(`[.;:!?]\s+`)
	// unclear is how a sentence begins that names no subject. goesOn is what makes such a word an ordinary beginning.
	unclear = regexp.MustCompile(`(?i)^(?:who|whom|whose|whoever|what|whatever|which|of|by|that|than|as|so|from|nobody|somebody)\b`)
	goesOn  = regexp.MustCompile(`(?i)^\w+ (?:default|example|convention|contrast|far|long as|opposed|of now|a|an|in|such|well|soon|with|is|said|that|hand)\b`)
)

// sentences returns the sentences of the comments that stand on lines of their own.
func sentences(text string) (list []string) {
	var paragraph []string
	inBlock := false
	end := func() {
		rest := strings.Join(paragraph, " ")
		paragraph = nil
		for rest != "" {
			sentence := rest
			if at := sentenceEnd.FindStringIndex(rest); at != nil {
				sentence, rest = rest[:at[0]+1], rest[at[1]:]
			} else {
				rest = ""
			}
			if len(strings.Fields(sentence)) >= 3 {
				list = append(list, sentence)
			}
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m := commentLine.FindStringSubmatch(line)
		if inBlock {
			m = insideBlock.FindStringSubmatch(line)
		}
		inBlock = (inBlock || strings.HasPrefix(strings.TrimSpace(line), "/*")) && !strings.Contains(line, "*/")
		if m == nil || directive.MatchString(line) {
			end()
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(line), "/*") {
			end() // another comment begins
		}
		paragraph = append(paragraph, m[1])
	}
	end()
	return list
}

func TestPlainComments(t *testing.T) {
	all, worst := 0, []string{}
	root := filepath.Join("..", "..")
	for _, folder := range []string{"api", "bpf", "client", "cmd", "examples", "include", "internal", "lab"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || d.Name() == "out") {
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".h") && !strings.HasSuffix(path, ".c") || strings.Contains(path, "_bpfel") {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, s := range sentences(string(text)) {
				all++
				if unclear.MatchString(s) && !goesOn.MatchString(s) {
					worst = append(worst, path+": "+s)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if percent := 100 * float64(len(worst)) / float64(max(all, 1)); percent > mostUnclearPercent {
		t.Errorf("%.1f%% of %d sentences of comments name no subject, at most %.1f%%:\n%s", percent, all, mostUnclearPercent, strings.Join(worst, "\n"))
	}
	if all < leastSentences {
		t.Errorf("comments have %d sentences, at least %d: do not delete what explains", all, leastSentences)
	}
}

func TestSentences(t *testing.T) {
	got := sentences("// Of two limits the lower holds. Both stay.\n// And so on: see there now.\ncode()\n*old = before // and then\n//go:build linux\n// by name\n\n/* A block\n * has lines. */\n")
	want := []string{"Of two limits the lower holds.", "And so on:", "see there now.", "A block has lines."}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q", got)
	}
	for s, is := range map[string]bool{"Of two limits the lower holds.": true, "By default it is off.": false, "Which of them is first?": true, "The lower holds.": false} {
		if (unclear.MatchString(s) && !goesOn.MatchString(s)) != is {
			t.Errorf("%q: unclear is %v", s, !is)
		}
	}
}
