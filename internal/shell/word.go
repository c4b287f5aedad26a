package shell

import (
	"regexp"
	"strings"
)

// plainWord matches words that every shell takes as they are. It excludes characters that have a meaning only in
// interactive shells or only in zsh: ! recalls a line of the history, [ begins a pattern, and = at the beginning of a
// word stands for the path of a program.
var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_@%+:,./-][a-zA-Z0-9_@%+=:,./-]*$`)

// quotedWord escapes the characters that a word in single quotes cannot contain: a quote, and a backslash, with which
// only fish begins an escape there.
var quotedWord = strings.NewReplacer("'", `'\''`, `\`, `'\\'`)

// Word quotes a text as one word of a command that is printed for people, who paste it into bash, zsh or fish.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + quotedWord.Replace(text) + "'"
}
