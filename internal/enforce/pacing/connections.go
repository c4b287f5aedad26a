package pacing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// Maintain implements enforce.Kernel: sockets whose callbacks another program
// erased, or that came to a limited program from elsewhere, are armed.
func (k *Kernel) Maintain() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.nodes) == 0 && !k.rates {
		return nil
	}
	if k.cover.path != rootCgroup && !k.guarded() {
		if err := k.coverAll(); err != nil {
			return err
		}
	}
	if err := k.coverAnew(); err != nil {
		return err
	}
	return k.adoptConnections(false)
}

// adoptConnections visits the network namespaces that hold a connection to be
// armed or released, or all of them.
func (k *Kernel) adoptConnections(everywhere bool) error {
	var wanted map[uint32]bool
	if !everywhere {
		list, err := k.obj.ListSockets()
		if err != nil {
			return fmt.Errorf("list sockets: %w", err)
		}
		if err := k.coverStrays(list); err != nil {
			return err
		}
		wanted = k.toVisit(list)
		if len(wanted) == 0 {
			return nil
		}
		statics := busyAt(list)
		for id := range k.nodes {
			statics[id] += 0 // where there is none now
		}
		if err := k.putStatics(statics); err != nil {
			return err
		}
	}
	return k.visit(wanted)
}

// toVisit returns the inode numbers of the network namespaces in which one of these
// sockets is to be armed or released.
func (k *Kernel) toVisit(list []bpf.SocketRecord) map[uint32]bool {
	wanted := map[uint32]bool{}
	for _, r := range list {
		if k.needsVisit(r) {
			wanted[r.Netns] = true
		}
	}
	return wanted
}

// visit goes through the connections of these namespaces, nil = all.
func (k *Kernel) visit(wanted map[uint32]bool) error {
	var errs []error
	for _, path := range Namespaces(wanted, k.nearby) {
		errs = append(errs, InNamespace(path, k.obj.AdoptConnections))
	}
	return errors.Join(errs...)
}

// busyAt returns how many of these sockets have something to send, by node.
func busyAt(list []bpf.SocketRecord) map[uint32]uint32 {
	busy := map[uint32]uint32{}
	for _, r := range list {
		if r.UnsentBytes == 0 {
			continue
		}
		for _, h := range r.State.Path {
			busy[h.Node]++
		}
	}
	return busy
}

// putStatics tells nodes how many connections have something to send. Where the
// kernel cannot switch an open connection's callbacks on, that one gets an equal
// part of the limit.
func (k *Kernel) putStatics(statics map[uint32]uint32) error {
	for id, sockets := range statics {
		n, ok := k.nodes[id]
		if !ok || n.StaticSockets == sockets {
			continue
		}
		var now bpf.Node
		if err := k.obj.Nodes.Lookup(id, &now); err != nil {
			return fmt.Errorf("read node %d: %w", id, err)
		}
		n.Parent, n.StaticSockets = now.Parent, sockets
		if err := k.obj.Nodes.Put(id, &n); err != nil {
			return fmt.Errorf("write node %d: %w", id, err)
		}
		k.nodes[id] = n
	}
	return nil
}

const (
	tcpTimeWait   = 6
	tcpClose      = 7
	tcpListen     = 10
	tcpNewSynRecv = 12
)

func (k *Kernel) needsVisit(r bpf.SocketRecord) bool {
	if r.Protocol == unix.IPPROTO_UDP {
		return false // nothing of it is armed
	}
	switch r.TcpState {
	case tcpTimeWait, tcpClose, tcpNewSynRecv:
		return false
	case tcpListen:
		if r.Protocol != unix.IPPROTO_MPTCP {
			return false
		}
	}
	limited := hasRate(r) && !k.going || k.limited(r)
	if r.Protocol == unix.IPPROTO_MPTCP {
		return limited && r.State.Flags&bpf.SocketSubflows == 0 || r.State.Flags&bpf.SocketChanged != 0
	}
	ours := r.State.Flags&bpf.SocketArmed != 0
	return limited != ours || limited && r.Armed == 0
}

// limited reports whether a node holds for a socket.
func (k *Kernel) limited(r bpf.SocketRecord) bool {
	for _, h := range r.State.Path {
		if n, ok := k.nodes[h.Node]; ok && n.Generation == h.Generation {
			return true
		}
	}
	return false
}

// Namespaces returns a path for each network namespace of the wanted inode
// numbers (nil: for every one that a process is in or that has a name). Those
// that are given first are looked at first.
func Namespaces(wanted map[uint32]bool, first ...string) []string {
	found := map[string]string{}
	done := func() bool { return wanted != nil && len(found) == len(wanted) }
	look := func(path string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || wanted != nil && !wanted[uint32(st.Ino)] {
			return
		}
		key := fmt.Sprint(st.Ino)
		if _, ok := found[key]; !ok {
			found[key] = path
		}
	}
	for _, path := range first {
		look(path)
	}
	look("/proc/self/ns/net")
	for _, dir := range []string{"/run/netns", "/run/docker/netns"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // none there
		}
		for _, e := range entries {
			look(filepath.Join(dir, e.Name()))
		}
	}
	if !done() {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			if done() {
				break
			}
			if strings.Trim(e.Name(), "0123456789") == "" {
				look(filepath.Join("/proc", e.Name(), "ns/net"))
			}
		}
	}
	out := make([]string, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	return out
}

// InNamespace runs f on a thread of its own in the network namespace at path.
// A namespace that has gone meanwhile is no error.
func InNamespace(path string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread does not end: it would stay there, and keep the
			// namespace alive. It is kept busy meanwhile.
			defer runtime.UnlockOSThread()
			result <- InNamespace(path, f)
			return
		}
		// Never unlocked: the thread ends with the goroutine.
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			result <- nil
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}
