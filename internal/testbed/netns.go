package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// NetNS is an anonymous network namespace. It lives as long as this handle or a process inside it. It has no name
// under /run/netns that could stay behind.
type NetNS struct {
	handle netns.NsHandle
	link   *netlink.Handle
}

// NewNetNS makes a namespace with lo up, IPv6 addresses usable at once and all
// but the first 1024 ports free for clients.
func NewNetNS() (*NetNS, error) {
	n := &NetNS{handle: netns.None()}
	err := onOwnThread(func() error {
		var err error
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	if err := n.setUp(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *NetNS) setUp() error {
	var err error
	if n.link, err = netlink.NewHandleAt(n.handle); err != nil {
		return fmt.Errorf("open netlink in the namespace: %w", err)
	}
	lo, err := n.link.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := n.link.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for _, s := range [][2]string{
		{"net/ipv4/ip_local_port_range", "1024 65535"},
		{"net/ipv4/ip_local_reserved_ports", "3000-9999"}, // servers' own: no connection takes one of them first
		{"net/ipv4/tcp_tw_reuse", "1"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv6/conf/default/router_solicitations", "0"},
	} {
		err := n.Sysctl(s[0], s[1])
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			return err
		}
	}
	return nil
}

// Close closes the handle of the namespace. The kernel removes the namespace, with its devices, once no process runs
// inside. Closing twice is harmless.
func (n *NetNS) Close() error {
	if n.link != nil {
		n.link.Close()
		n.link = nil
	}
	if !n.handle.IsOpen() {
		return nil
	}
	if err := n.handle.Close(); err != nil {
		return fmt.Errorf("close network namespace: %w", err)
	}
	return nil
}

// Path names the namespace for other processes of the same user, for as long
// as this process lives, as in `nsenter --net=PATH`.
func (n *NetNS) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle))
}

// Netlink returns a netlink handle inside the namespace; Close ends it.
func (n *NetNS) Netlink() *netlink.Handle { return n.link }

// Do calls fn on a thread that is inside the namespace. Goroutines that fn
// starts are outside.
func (n *NetNS) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// Start starts the command inside the namespace.
func (n *NetNS) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Sysctl writes a setting of the namespace; key is a path below /proc/sys such
// as net/ipv4/tcp_ecn.
func (n *NetNS) Sysctl(key, value string) error {
	return n.Do(func() error {
		err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644)
		if err != nil {
			return fmt.Errorf("set sysctl %s=%s: %w", key, value, err)
		}
		return nil
	})
}

// onOwnThread is the only function of this package in which a thread changes its namespace. It calls fn on a thread that no other
// goroutine uses and restores the thread's network namespace. A thread without its old namespace is never used
// again.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		before, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("open the present network namespace: %w", err)
			return
		}
		defer before.Close()
		err = fn()
		if back := netns.Set(before); back != nil {
			done <- errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
			return // still locked: the runtime ends the thread with the goroutine
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
