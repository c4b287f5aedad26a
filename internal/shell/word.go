package shell

import (
	"regexp"
	"strings"
)

// plainWord is what every shell takes as it is. Not in it are the marks that only shells for people, or only zsh, take for
// something else: ! is a line of the history, and [ begins a pattern.
var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_@%+:,./-][a-zA-Z0-9_@%+=:,./-]*$`)

// quotedWord writes inside single quotes what would not stand there as it is: a quote, and a backslash, which only fish
// takes for the beginning of an escape.
var quotedWord = strings.NewReplacer("'", `'\''`, `\`, `'\\'`)

// Word is a text as one word of a command that is printed for people, who paste it into bash, zsh or fish.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + quotedWord.Replace(text) + "'"
}
