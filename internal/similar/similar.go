// Package similar finds the words that a mistyped word may stand for.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// Words returns up to three of the words that a mistyped word may stand for, the nearest first. They differ by one
// letter, from five letters on by two, or are longer words that begin with the mistyped one.
func Words(word string, words []string) []string {
	const mostWords, longWord = 3, 5
	within := 1
	if len(word) >= longWord {
		within = 2
	}
	type near struct {
		word     string
		distance int
	}
	var list []near
	for _, other := range words {
		switch d := editDistance(strings.ToLower(word), strings.ToLower(other)); {
		case d <= within && d < len(word):
			list = append(list, near{other, d})
		case len(word) > 1 && strings.HasPrefix(other, word):
			list = append(list, near{other, within + 1})
		}
	}
	slices.SortFunc(list, func(a, b near) int { return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.word, b.word)) })
	var out []string
	for _, n := range list[:min(mostWords, len(list))] {
		out = append(out, n.word)
	}
	return out
}

// editDistance counts the letters to insert, leave out, replace, or exchange with their neighbours.
func editDistance(a, b string) int {
	last, before := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
