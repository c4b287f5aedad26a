package request

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// Bad returns the error of a request that cannot be meant so, with a command that could.
func Bad(hint, format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Full returns the error of a request beyond a quota: what says which limits are as many as there may be.
func Full(what string, most int, hint string) error {
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%s limits already, the most there may be: %d", what, most), Hint: hint}
}

// NoLimit returns the error of a request to lift what is not there.
func NoLimit(s api.Subject) error {
	return &api.Error{Code: api.CodeNoLimit, Message: fmt.Sprintf("no limit stands on %s", s), Hint: "netnice ls"}
}

// SetByAdministrator returns the error of a user who would lift a limit that is not theirs.
func SetByAdministrator(s api.Subject) error {
	return auth.Denied(fmt.Sprintf("the limit on %s was set by the administrator", s), auth.Command(auth.Remove, s, api.Wish{}))
}

// KernelError tells a process that ended meanwhile from a fault, and adds remedies. Without an error it returns none.
func KernelError(s api.Subject, err error) error {
	switch {
	case errors.Is(err, enforce.ErrNotSupported):
		return &api.Error{Code: api.CodeNotSupported, Message: err.Error(), Hint: "netnice doctor", Cause: err}
	case errors.Is(err, enforce.ErrTooDeep):
		return &api.Error{Code: api.CodeConflict, Message: err.Error(), Hint: "lift one of those around it or in it: netnice ls, or limit the user: netnice set --user ...", Cause: err}
	case errors.Is(err, unix.ESRCH):
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("%s has ended", s), Hint: "ps -e", Cause: err}
	}
	return err
}

// Rehearsed makes the command that an error recommends a dry run, if that repeats a refused one with more rights.
func Rehearsed(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Code != api.CodeDenied || !strings.HasPrefix(refused.Hint, "sudo netnice set") {
		return err
	}
	again := *refused
	again.Hint += " --dry-run"
	return &again
}
