package shell

import (
	"regexp"
	"strings"
)

// plainWord is what every shell takes as it is. Not in it are the marks that only shells for people, or only zsh, take for
// something else: ! is a line of the history, and [ begins a pattern.
var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_@%+:,./-][a-zA-Z0-9_@%+=:,./-]*$`)

// Word is a text as one word of a command that is printed for people, who paste it into bash, zsh or fish.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
