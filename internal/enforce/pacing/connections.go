package pacing

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Maintain implements enforce.Events. It arms sockets that lost their callbacks to another program, and sockets
// that came to a limited program from elsewhere.
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
	if err := errors.Join(k.coverAnew(), k.markAnew()); err != nil {
		return err
	}
	return k.adoptConnections(false)
}

// adoptFiles makes the paths of the sockets that processes have open, nil = all processes.
func (k *Kernel) adoptFiles(processes []uint32) error {
	rings, err := k.obj.AdoptFiles(processes)
	if err != nil || !rings {
		return err
	}
	var errs []error
	for _, path := range netnamespace.Paths(nil, k.nearby) {
		errs = append(errs, netnamespace.Within(path, func() error {
			return errors.Join(k.obj.AdoptUrings(), k.obj.AdoptConnections())
		}))
	}
	return errors.Join(append(errs, k.obj.ForgetUrings())...)
}

// adoptConnections visits the network namespaces that hold a connection to be armed or released, or all namespaces.
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
			statics[id] += 0 // nodes without such connections get 0
		}
		if err := k.putStatics(statics); err != nil {
			return err
		}
		if err := k.putFixed(list); err != nil {
			return err
		}
	}
	return k.visit(wanted)
}

// toVisit returns the inode numbers of the network namespaces in which one of these sockets is to be armed or
// released.
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
	for _, path := range netnamespace.Paths(wanted, k.nearby) {
		errs = append(errs, netnamespace.Within(path, k.obj.AdoptConnections))
	}
	return errors.Join(errs...)
}

// busyAt returns for each node how many of these sockets have something to send.
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

// putStatics writes to nodes how many connections have something to send. Some kernels cannot switch on the
// callbacks of an open connection. Such a connection gets an equal part of the limit until its own rate is computed
// (fixed.go).
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
		return false // datagram sockets need no arming
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
