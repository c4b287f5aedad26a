package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

// These are the times that a command waits. readTimeout is for the answer to a reading call. writeTimeout is for that
// to a writing call, which may have to walk every process and socket. startTimeout is for a daemon to come up, and
// pollInterval is the pause between two polls.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 60 * time.Second
	startTimeout = 2 * time.Minute
	startSlow    = 10 * time.Second // after this time the command says that it waits for a daemon
	downTimeout  = 3 * time.Minute
	rivalTimeout = 3 * time.Second // for the answer of another daemon that has come up first
	pollInterval = 20 * time.Millisecond
	// reachTimeout is the time in which a daemon that runs must be found on its socket. A daemon makes a removed socket
	// again within a second or two.
	reachTimeout = 3 * time.Second
	// politeTimeout is the time in which a daemon must end after SIGTERM.
	politeTimeout = 15 * time.Second
)

// read runs a call that changes nothing. Without a daemon it says so, and
// whether limits hold nevertheless; exit code 5.
func (a *App) read(ctx context.Context, call func(context.Context, *client.Client) error) error {
	return a.readFor(ctx, readTimeout, call)
}

// readFor is read for a call that may take another time than usual.
func (a *App) readFor(ctx context.Context, most time.Duration, call func(context.Context, *client.Client) error) error {
	c := client.New(a.socket)
	defer c.Close()
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	watch := a.watchDaemon(most)
	err := watch.explain(call(within, c))
	if errors.Is(err, client.ErrNoDaemon) {
		return a.nobody(ctx, err)
	}
	return err
}

// nobody returns the error for a machine on which no daemon runs, or on which the daemon does not answer.
func (a *App) nobody(ctx context.Context, cause error) error {
	f := &failure{code: exitNoDaemon, cause: cause}
	if r, ok := a.running(DefaultStateDir); ok {
		f.message, f.hint = a.unreachable(r)
		return f
	}
	pins, err := a.System.Pins(a.PinDir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.message = "no daemon is running; only root can see whether limits of an earlier one still hold"
		f.hint = "sudo netnice up"
	case pins || err != nil:
		f.message = "no daemon is running, but limits of an earlier one still hold"
		f.hint = "sudo netnice up    takes them over\nsudo netnice down  lifts them"
	default:
		f.message = "no daemon is running and no limit is in force"
		f.hint = "sudo netnice up"
		if left := a.unused(ctx, false); len(left) > 0 {
			f.message += "; " + leftText(left)
			f.hint = "sudo netnice down  removes them\nsudo netnice up"
		}
	}
	return f
}

// write runs a call that changes something. If no daemon answers, a command of root starts one that leaves with its
// last limit.
func (a *App) write(ctx context.Context, call func(context.Context, *client.Client) error) error {
	return a.writeStarting(ctx, []string{flagOnDemand}, call)
}

const flagOnDemand = "--on-demand"

// writeStarting is write with flags of the daemon that is started.
func (a *App) writeStarting(ctx context.Context, flags []string, call func(context.Context, *client.Client) error) error {
	c := client.New(a.socket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	watch := a.watchDaemon(writeTimeout)
	return watch.explain(a.askOrStart(ctx, c, flags, call))
}

// askOrStart runs a call, and starts a daemon if none answers.
func (a *App) askOrStart(ctx context.Context, c *client.Client, flags []string, call func(context.Context, *client.Client) error) error {
	err := a.ask(ctx, c, call)
	// Twice, because a daemon on demand may leave just while it is asked.
	for range 2 {
		if !errors.Is(err, client.ErrNoDaemon) {
			return err
		}
		if a.System.EUID() != 0 {
			return a.onlyRoot(err)
		}
		if err := a.start(ctx, c, flags...); err != nil {
			return err
		}
		err = a.ask(ctx, c, call)
	}
	return err
}

// ask runs a call, and finds out whether a daemon that refused the call is about to leave.
func (a *App) ask(ctx context.Context, c *client.Client, call func(context.Context, *client.Client) error) error {
	err := call(ctx, c)
	if isCode(err, api.CodeConflict) {
		c.Close() // a new connection, which a daemon that leaves does not take
		if _, gone := c.Status(ctx); errors.Is(gone, client.ErrNoDaemon) {
			return gone
		}
	}
	return err
}

// start brings a daemon up and waits until it answers. If it ends instead, its
// own words are the error, unless it ended because another one comes up.
func (a *App) start(ctx context.Context, c *client.Client, flags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	begin := logSize(a.LogPath)
	args := append([]string{"daemon", "--socket", a.socket, "--pin-dir", a.PinDir}, flags...)
	pid, err := a.System.StartDetached(args, a.LogPath)
	if err != nil {
		return err
	}
	began, ended, told := time.Now(), time.Time{}, false
	for {
		if !told && time.Since(began) > startSlow {
			told = true
			a.warn([]string{fmt.Sprintf("the daemon (pid %d) is coming up; %s says what it does", pid, a.LogPath)})
		}
		alive := a.System.Alive(pid) // before the question, because another daemon may answer it
		_, err := c.Status(ctx)
		switch {
		case err == nil:
			return nil
		case !alive:
			if ended.IsZero() {
				ended = time.Now()
			}
			text := logged(a.LogPath, begin)
			if !strings.Contains(text, "code="+api.CodeConflict) || time.Since(ended) > rivalTimeout {
				message, hint := lastWords(text, "look at "+a.LogPath)
				return failWith(exitFailed, hint, "the daemon did not start: %s", message)
			}
		}
		select {
		case <-ctx.Done():
			return failWith(exitFailed, "look at "+a.LogPath, "the daemon (pid %d) did not answer within %v", pid, time.Since(began).Round(time.Second))
		case <-time.After(pollInterval):
		}
	}
}

func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// logged returns the text that was written to a log behind begin: the whole log, if it was put aside since.
func logged(path string, begin int64) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if int64(len(text)) < begin {
		begin = 0
	}
	return string(text[begin:])
}

// lastWords finds the error with which a daemon ended in what it has logged: the
// last "netnice: ..." and the remedy below, or else the last line and hint.
func lastWords(text, hint string) (message, remedy string) {
	if strings.TrimSpace(text) == "" {
		return "it said nothing", hint
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if message, ok := strings.CutPrefix(lines[i], "netnice: "); ok {
			var remedy []string
			for _, line := range lines[i+1:] {
				remedy = append(remedy, strings.TrimSpace(line))
			}
			if len(remedy) > 0 {
				hint = strings.Join(remedy, "\n")
			}
			return message, hint
		}
	}
	return lines[len(lines)-1], hint
}
