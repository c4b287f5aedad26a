package api

import "net/http"

// The codes of Error. The HTTP status follows from them.
const (
	CodeBadRequest   = "bad_request"   // 400
	CodeDenied       = "denied"        // 403
	CodeNotFound     = "not_found"     // 404: no such subject
	CodeNoLimit      = "no_limit"      // 404: the subject is there, but no limit holds for it
	CodeConflict     = "conflict"      // 409
	CodeBusy         = "busy"          // 429: the caller has had their share for now
	CodeNotSupported = "not_supported" // 501: this kernel or this release cannot
	CodeInternal     = "internal"      // 500
)

// HTTPStatus returns the status that an answer with this code has; 500 for a
// code that it does not know.
func HTTPStatus(code string) int {
	switch code {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeDenied:
		return http.StatusForbidden
	case CodeNotFound, CodeNoLimit:
		return http.StatusNotFound
	case CodeConflict:
		return http.StatusConflict
	case CodeBusy:
		return http.StatusTooManyRequests
	case CodeNotSupported:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// Error is the body of every answer that is not 2xx. Hint is a command to run
// or the thing to change.
type Error struct {
	Code    string `json:"code"`           // the kind of error, for programs; the HTTP status follows from it
	Message string `json:"message"`        // what failed, and why
	Hint    string `json:"hint,omitempty"` // a command to run, or what to change
	// NotUndone is what holds of a refused change nevertheless, because its undo failed, too: a text for each step. It
	// is empty if all is as it was. Message and Hint say the same to people.
	NotUndone []string `json:"not_undone,omitempty"`
	// Cause is what went wrong underneath, for errors.Is; it stays on the
	// side that made the Error.
	Cause error `json:"-"`
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\n  " + e.Hint
}
