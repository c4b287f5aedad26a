package daemon

import (
	"fmt"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sdnotify "github.com/coreos/go-systemd/v22/daemon"
)

// endpoint returns the socket for callers. A service manager may have opened it and passed it on (systemd's socket
// activation); then it stays when the daemon ends. Otherwise the daemon opens its own.
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
			_ = g.Close() // no socket for callers
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

// tell reports the state of the daemon to a service manager, if there is one.
func (d *Daemon) tell(state string) {
	if _, err := sdnotify.SdNotify(false, state); err != nil {
		d.log.Warn("the service manager was not told how netnice is", "state", state, "err", err)
	}
}

// watchdogPause is the interval at which the service manager expects a sign of life. It is half the time after which
// the service manager acts; 0 = never.
func watchdogPause() time.Duration {
	after, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		return 0 // a variable for another process, or without meaning
	}
	return after / 2
}
