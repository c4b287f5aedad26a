package request

import (
	"errors"
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
)

// againHint is the remedy for most of what a refused change has left behind.
const againHint = "netnice ls shows what is in force; the daemon tries each second to bring back what was before"

// NotUndone returns the error of a refused change with what could not be undone, and what helps. Nothing left behind
// is the error as it is.
func NotUndone(refused error, left ...error) error {
	if refused == nil || len(left) == 0 {
		return refused
	}
	answer := api.Error{Code: api.CodeInternal, Message: refused.Error()}
	var known *api.Error
	if errors.As(refused, &known) {
		answer = *known
	}
	var hints []string
	for _, err := range left {
		text, hint := err.Error(), againHint
		var own *api.Error
		if errors.As(err, &own) {
			text, hint = own.Message, own.Hint
		}
		answer.NotUndone = append(answer.NotUndone, text)
		if hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	answer.Message += "; not all of it was undone: " + strings.Join(answer.NotUndone, "; ")
	if answer.Hint != "" {
		hints = append(hints, answer.Hint)
	}
	answer.Hint, answer.Cause = strings.Join(hints, "\n"), refused
	return &answer
}

// StepBack returns the error of an undo that no later look of the daemon makes good, with the command that does. Without
// an error it returns none.
func StepBack(hint, what string, err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Code: api.CodeInternal, Message: what + ": " + err.Error(), Hint: hint, Cause: err}
}
