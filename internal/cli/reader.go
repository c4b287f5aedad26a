package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readerPoll is how long one poll for the end of a reader lasts.
const readerPoll = time.Second

// untilReaderGone returns a context that ends when the output of a command has no reader any more: the other end of the
// pipe was closed, as head does when it has enough. A command that prints events would notice that only at the next
// event.
func (a *App) untilReaderGone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	file, ok := a.Out.(*os.File)
	if !ok {
		return ctx, cancel
	}
	fd := int32(file.Fd())
	go func() {
		for ctx.Err() == nil {
			poll := []unix.PollFd{{Fd: fd}} // poll(2) always reports errors and hang-ups
			_, err := unix.Poll(poll, int(readerPoll.Milliseconds()))
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil, poll[0].Revents&unix.POLLNVAL != 0:
				return // the end of the reader cannot be noticed
			case poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
				cancel()
			}
		}
	}()
	return ctx, cancel
}

// noReader reports whether an error says that the output has no reader any more.
func noReader(err error) bool {
	var path *fs.PathError // the error of a file; errors of the daemon's socket have another type
	return errors.As(err, &path) && path.Op == "write" && errors.Is(path, syscall.EPIPE)
}
