package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Comments are plain: a sentence names its subject first, and has no words of a private language. These bounds are for
// all comments together.
const (
	mostUnclearPercent = 1.0    // also of the comments behind code
	leastSentences     = 10_430 // nine tenths of those on lines of their own when the comments were rewritten
)

var (
	// commentLine is a line of a comment; insideBlock is one of a comment that began before.
	commentLine = regexp.MustCompile(`^\s*(?://|/\*+)\s?(.*?)(?:\*/)?\s*$`)
	insideBlock = regexp.MustCompile(`^\s*\*?\s?(.*?)(?:\*/)?\s*$`)
	// trailing is a comment behind code.
	trailing  = regexp.MustCompile(`[^:"']//\s(.*)$|/\*\s(.*?)\*/`)
	directive = regexp.MustCompile(`^\s*//(?:go:|nolint)|SPDX`)
	// sentenceEnd is where a sentence ends within a comment.
	sentenceEnd = regexp.MustCompile(`[.;:!?]\s+`)
	// unclear is how a sentence begins that names no subject. goesOn is what makes such a word an ordinary beginning.
	unclear = regexp.MustCompile(`(?i)^(?:who|whom|whose|whoever|what|whatever|which|of|by|that|than|as|so|from|in whose|for whom|to whom|not who|nobody|somebody)\b`)
	goesOn  = regexp.MustCompile(`(?i)^\w+ (?:default|example|convention|contrast|far|long as|opposed|of now|a|an|in|such|well|soon|with|is|said|that|hand)\b`)
	// idiom are words that only readers of this code know in that sense.
	idiom = regexp.MustCompile(`(?i)\b(?:so (?:many|much|often|soon) (?:as|again|later)|(?:is|are|was|were) (?:told|met|asked for it|so still)|by now|anew` +
		`|none any more|(?:is|are) no (?:more|longer) than|(?:has|have) (?:it|them|all of it)? ?be(?:en)? as|stands? (?:on|for) (?:it|them|whom)` +
		`|of whom|whose it is|may be there|as many as may be|what is no|that is no|is as it was|to be there|let go of|lets go of` +
		`|has (?:a|the) word|at which nobody|who (?:comes|sends|asks|pauses|waits|leaves|shares|has|wants|is) )\b`)
)

// isUnclear reports whether a sentence names no subject, or is idiom.
func isUnclear(s string) bool {
	return unclear.MatchString(s) && !goesOn.MatchString(s) || idiom.MatchString(s)
}

// inSentences divides a text. It leaves out what has fewer than three words.
func inSentences(text string) (list []string) {
	for text != "" {
		sentence := text
		if at := sentenceEnd.FindStringIndex(text); at != nil {
			sentence, text = text[:at[0]+1], text[at[1]:]
		} else {
			text = ""
		}
		if len(strings.Fields(sentence)) >= 3 {
			list = append(list, sentence)
		}
	}
	return list
}

// sentences returns the sentences of the comments that stand on lines of their own, and those of comments behind code.
func sentences(text string) (own, behind []string) {
	var paragraph []string
	inBlock := false
	end := func() {
		own = append(own, inSentences(strings.Join(paragraph, " "))...)
		paragraph = nil
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
			if t := trailing.FindStringSubmatch(line); t != nil {
				behind = append(behind, inSentences(t[1]+t[2])...)
			}
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(line), "/*") {
			end() // another comment begins
		}
		paragraph = append(paragraph, m[1])
	}
	end()
	return own, behind
}

func TestPlainComments(t *testing.T) {
	ownLine, all, worst := 0, 0, []string{}
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
			own, behind := sentences(string(text))
			ownLine += len(own)
			for _, s := range append(own, behind...) {
				all++
				if isUnclear(s) {
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
		t.Errorf("%.2f%% of %d sentences of comments name no subject or are idiom, at most %.1f%%:\n%s", percent, all, mostUnclearPercent, strings.Join(worst, "\n"))
	}
	if ownLine < leastSentences {
		t.Errorf("comments have %d sentences, at least %d: do not delete what explains", ownLine, leastSentences)
	}
}

func TestSentences(t *testing.T) {
	own, behind := sentences("// Of two limits the lower holds. Both stay.\n// And so on: see there now.\ncode()\n*old = before // and then again\n//go:build linux\n// by name\n\n/* A block\n * has lines. */\nint x; /* in whole bytes */\nurl = \"http:// is no comment\"\n")
	want := []string{"Of two limits the lower holds.", "And so on:", "see there now.", "A block has lines."}
	if strings.Join(own, "|") != strings.Join(want, "|") {
		t.Errorf("%q", own)
	}
	if strings.Join(behind, "|") != "and then again|in whole bytes " {
		t.Errorf("behind code: %q", behind)
	}
	for s, is := range map[string]bool{
		"Of two limits the lower holds.": true, "By default it is off.": false, "Which of them is first?": true, "The lower holds.": false,
		"The queue is made anew.": true, "The rate is as it was before.": true, "The queue is made again.": false,
	} {
		if isUnclear(s) != is {
			t.Errorf("%q: unclear is %v", s, !is)
		}
	}
}
