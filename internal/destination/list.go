package destination

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// Mistake is an error in a line of a file of prefixes.
type Mistake struct {
	Line int
	Text string
}

// mostMistakes bounds the mistakes of one report.
const mostMistakes = 20

// ReadList reads a file that lists addresses and prefixes, one a line; # begins a comment.
// The list is sorted, and has each prefix once. With a mistake there is no list.
func ReadList(r io.Reader) (list []netip.Prefix, mistakes []Mistake, err error) {
	lines := bufio.NewScanner(r)
	for at := 1; lines.Scan(); at++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := ParsePrefix(text)
		if err != nil {
			if len(mistakes) < mostMistakes {
				mistakes = append(mistakes, Mistake{at, strings.Replace(err.Error(), "an address, a prefix nor a name", "an address nor a prefix", 1)})
			}
			continue
		}
		list = append(list, p)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	if len(mistakes) > 0 {
		return nil, mistakes, nil
	}
	return Tidy(list), nil, nil
}

// Tidy sorts prefixes and removes duplicates.
func Tidy(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}
