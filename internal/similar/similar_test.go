package similar

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWords(t *testing.T) {
	words := []string{"ls", "link", "set", "unset", "status", "show", "monitor", "up", "down", "reserve"}
	for word, want := range map[string][]string{
		"statsu": {"status"}, "stauts": {"status"}, "mon": {"monitor"}, "sett": {"set"}, "unset": {"unset", "set"},
		"shwo": {"show"}, "frobnicate": nil, "": nil, "x": nil, "top": nil, "calls": nil, "history": nil, "container": nil,
	} {
		require.Equal(t, want, Words(word, words), word)
	}
	require.Equal(t, []string{"ab", "ac", "ad"}, Words("aa", []string{"ae", "ad", "ac", "ab"}), "three at most")
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"kitten", "sitting", 3}} {
		require.Equal(t, c.want, editDistance(c.a, c.b), "%s %s", c.a, c.b)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching("[ab]{0,6}")
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		d := editDistance(a, b)
		require.Equal(t, d, editDistance(b, a))
		require.Equal(t, a == b, d == 0)
		require.LessOrEqual(t, d, max(len(a), len(b)))
		require.GreaterOrEqual(t, d, max(len(a), len(b))-min(len(a), len(b)))
	})
}
