package daemon

import (
	"fmt"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sdnotify "github.com/coreos/go-systemd/v22/daemon"
)

// endpoint returns the socket that callers come to: one that a service manager
// has opened and passes on (systemd's socket activation), which stays when the
// daemon ends, or one of its own.
func (d *Daemon) endpoint() (*endpoint, error) {
	given, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take the service manager's socket: %w", err)
	}
	var l *net.UnixListener
	for _, g := range given {
		if unix, ok := g.(*net.UnixListener); ok && l == nil {
			unix.SetUnlinkOnClose(false)
			l = unix
			continue
		}
		if g != nil {
			_ = g.Close() // not a socket that callers could come to
		}
	}
	if l != nil {
		return newEndpoint(l.Addr().String(), l, true), nil
	}
	if l, err = listen(d.opts.SocketPath); err != nil {
		return nil, err
	}
	return newEndpoint(d.opts.SocketPath, l, false), nil
}

// tell tells a service manager, if there is one, what state the daemon is in.
func (d *Daemon) tell(state string) {
	if _, err := sdnotify.SdNotify(false, state); err != nil {
		d.log.Warn("the service manager was not told how netnice is", "state", state, "err", err)
	}
}

// watchdogPause is how often the service manager wants to hear that the daemon is
// alive: at least twice in the time after which it takes action; 0 = never.
func watchdogPause() time.Duration {
	after, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		return 0 // a variable that means another process, or nothing
	}
	return after / 2
}
