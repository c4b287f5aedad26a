package netdevice

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watcher reports that devices came, went or changed.
type Watcher struct {
	changed chan struct{}
	stop    chan struct{}
}

const (
	watchPause   = 50 * time.Millisecond // at least, between two looks
	watchTimeout = 500 * time.Millisecond
	// A look lists all devices of a namespace, however few have changed, and holds the lock that commands wait for.
	// After a long look the pause is watchFactor times as long as the look, up to watchMost.
	watchFactor = 2
	watchMost   = time.Second
)

// pauseAfter returns the pause after a look that took so long.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(watchPause, watchFactor*took), watchMost)
}

// Watch calls look after each change of a device in the current namespace, until Close.
func Watch(look func()) (*Watcher, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	timeout := unix.NsecToTimeval(watchTimeout.Nanoseconds())
	if err := socket.SetReceiveTimeout(&timeout); err != nil {
		socket.Close()
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	w := &Watcher{changed: make(chan struct{}, 1), stop: make(chan struct{})}
	go w.read(socket)
	go w.follow(look)
	return w, nil
}

// read wakes follow for every message. A lost message counts as a message.
func (w *Watcher) read(socket *nl.NetlinkSocket) {
	defer socket.Close()
	for {
		_, _, err := socket.Receive()
		select {
		case <-w.stop:
			return
		default:
		}
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			time.Sleep(watchTimeout)
		}
	}
}

func (w *Watcher) follow(look func()) {
	for {
		select {
		case <-w.stop:
			return
		case <-w.changed:
		}
		began := time.Now()
		look()
		select {
		case <-w.stop:
			return
		case <-time.After(pauseAfter(time.Since(began))):
		}
	}
}

// Close ends the watch. A last look may still be under way.
func (w *Watcher) Close() { close(w.stop) }
