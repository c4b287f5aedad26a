package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/netnice/netnice/internal/stall"
)

// daemonWatch watches the daemon while a command waits for its answer.
type daemonWatch struct{ *stall.Watch }

// watchDaemon begins to watch the daemon of this command, which waits for its answer this long at most.
func (a *App) watchDaemon(most time.Duration) daemonWatch {
	return daemonWatch{stall.Begin(a.socket, a.proc, most)}
}

// explain ends the watch. It returns err, or, for a daemon that did not answer, an error that says what the daemon
// does.
func (w daemonWatch) explain(err error) error {
	w.Stop()
	message := "the daemon did not answer in time"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, syscall.EAGAIN): // of connect
		message = "so many calls wait for the daemon that it can take no more"
	default:
		return err
	}
	found, ok := w.Find()
	if !ok {
		return err
	}
	return &failure{message: fmt.Sprintf("%s: its process %d %s", message, found.PID, found.Does), hint: found.Remedy + "\n" + logHint, code: exitNoDaemon, cause: err}
}
