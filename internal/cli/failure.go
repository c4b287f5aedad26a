package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

// failure is an error as the user reads it: one line, the remedy, and the exit code.
type failure struct {
	message string
	hint    string
	code    int // 0 = exitFailed
	cause   error
}

func (f *failure) Error() string { return f.message }
func (f *failure) Hint() string  { return f.hint }
func (f *failure) Unwrap() error { return f.cause }

// fail makes a failure of wrong usage: an argument, or the content of a file that it names, makes no sense.
func fail(hint, format string, args ...any) error {
	return failWith(exitUsage, hint, format, args...)
}

// failWith makes a failure with another exit code.
func failWith(code int, hint, format string, args ...any) error {
	return &failure{message: fmt.Sprintf(format, args...), hint: hint, code: code}
}

// report prints err as the user should read it and returns the exit code. It prints nothing if the output has lost its
// reader, which is no fault of netnice's.
func (a *App) report(err error) int {
	if err == nil || noReader(err) {
		return exitOK
	}
	message, hint, code := explain(err)
	priority := ""
	if a.Journal {
		priority = journalError
	}
	if message != "" {
		fmt.Fprintf(a.Err, "%snetnice: %s\n", priority, printable(message))
	}
	for line := range strings.Lines(hint) {
		fmt.Fprintf(a.Err, "%s  %s\n", priority, printable(strings.TrimRight(line, "\n")))
	}
	return code
}

// logHint is the remedy for a failure whose reason the daemon itself does not give.
const logHint = "look at its log: journalctl -t netnice, or /var/log/netnice-daemon.log"

// explain returns the message, the remedy and the exit code of an error. The message stays on one line.
func explain(err error) (message, hint string, code int) {
	message, code = err.Error(), exitFailed
	var hinted interface{ Hint() string }
	var remote *api.Error
	var own *failure
	var parse *units.ParseError
	switch {
	case errors.As(err, &own):
		message, hint = own.message, own.hint
		if own.code != 0 {
			code = own.code
		}
	case errors.As(err, &remote):
		message, hint, code = remote.Message, remote.Hint, remoteCode(remote.Code)
	case errors.As(err, &parse):
		hint, code = parse.Hint(), exitUsage
	case errors.Is(err, client.ErrNoDaemon):
		code = exitNoDaemon
	case isExclusive(err):
		code = exitUsage
	case errors.Is(err, context.DeadlineExceeded):
		message, hint, code = "the daemon did not answer in time", logHint, exitNoDaemon
	case errors.As(err, &hinted):
		hint = hinted.Hint()
	}
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; "), hint, code
}

// remoteCode returns the exit code for a code of the API.
func remoteCode(code string) int {
	switch code {
	case api.CodeBadRequest:
		return exitUsage
	case api.CodeNotFound, api.CodeNoLimit:
		return exitNoSubject
	case api.CodeDenied:
		return exitDenied
	}
	return exitFailed
}

// isExclusive recognizes, by its words, cobra's error about flags that do not go together.
func isExclusive(err error) bool {
	return strings.HasPrefix(err.Error(), "if any flags in the group [")
}

// flagFailure words the errors of cobra and pflag about flags.
func flagFailure(cmd *cobra.Command, err error) error {
	help := cmd.CommandPath() + " --help"
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		name := "--" + invalid.GetFlag().Name
		cause := invalid.Unwrap()
		_, hint, _ := explain(cause)
		if hint == "" {
			hint = help
		}
		return &failure{message: fmt.Sprintf("%s: %s", name, cause), hint: hint, code: exitUsage, cause: err}
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		short := unknown.GetSpecifiedShortnames()
		if len(short) > 0 && strings.ContainsAny(short[:1], "0123456789.") {
			return &failure{message: fmt.Sprintf("-%s is negative, or a flag that does not exist", short), hint: help, code: exitUsage, cause: err}
		}
		if like := similarFlags(cmd, unknown.GetSpecifiedName()); short == "" && len(like) > 0 {
			help = "did you mean " + strings.Join(like, " or ") + "?\n" + help
		}
	}
	return &failure{message: err.Error(), hint: help, code: exitUsage, cause: err}
}

// isCode reports whether the daemon answered with this code.
func isCode(err error, code string) bool {
	var remote *api.Error
	return errors.As(err, &remote) && remote.Code == code
}
