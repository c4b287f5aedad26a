package pacing

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// A socket that limits its ingress, or its datagrams, needs a node of its own. No command asks the daemon for such
// a node, so the kernel side makes it. Package enforce/shaping does that, as the node needs classes in queues.

// SocketWish is a socket that needs a node, by its cookie.
type SocketWish struct {
	Cookie, Up, Down uint64
	UID              uint32 // owner of the socket
	Reserved         bool   // it has a node already, for a reservation
}

// SocketsChanged delivers a value when sockets that need a node may have come, changed or gone. Events cause a
// value at once, and while there are such sockets it comes once a second.
func (k *Kernel) SocketsChanged() <-chan struct{} { return k.sockets }

func (k *Kernel) askForSockets() {
	select {
	case k.sockets <- struct{}{}:
	default:
	}
}

// SocketWishes lists the sockets that need a node.
func (k *Kernel) SocketWishes() ([]SocketWish, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.going || !k.rates && !k.hasSocketNodes() {
		return nil, nil
	}
	list, err := k.obj.ListSockets()
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	var out []SocketWish
	for _, r := range list {
		w := SocketWish{Cookie: r.Cookie, Down: r.State.ReceiveBytesPerSec, UID: r.State.Uid}
		if r.Protocol == unix.IPPROTO_UDP {
			w.Up = r.State.RateBytesPerSec
		}
		_, w.Reserved = k.reservingNode(r)
		// An MPTCP socket needs no node, as its subflows have nodes.
		if (w.Up|w.Down != 0 || w.Reserved) && r.Cookie != 0 && r.Protocol != unix.IPPROTO_MPTCP && r.TcpState != tcpTimeWait {
			out = append(out, w)
		}
	}
	return out, nil
}

// SocketNodes returns the nodes of sockets in force.
func (k *Kernel) SocketNodes() (out []enforce.NodeSpec) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, n := range k.nodes {
		if n.Kind == bpf.KindSocket {
			out = append(out, specOf(id, n))
		}
	}
	return out
}

// AssignSockets gives the sockets the nodes that were made for them, and takes removed nodes away. It arms the open
// connections.
func (k *Kernel) AssignSockets() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.obj.AssignSockets(); err != nil {
		return err
	}
	return k.adoptConnections(false)
}

// ErrTooManySockets says that no further socket may have a node.
var ErrTooManySockets = fmt.Errorf("more sockets limit themselves than there may be: %d, of a user %d", enforce.MostSockets, enforce.MostSocketsOfUser)

// FreeSocketNode returns the number of an unused node for a socket, 0 if there is none. The search goes on from the
// number that it returned last.
func (k *Kernel) FreeSocketNode() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	const many = enforce.MaxNodes - enforce.FirstSocketNode
	for i := range uint32(many) {
		id := enforce.FirstSocketNode + (max(k.lastSocket, enforce.FirstSocketNode)-enforce.FirstSocketNode+1+i)%many
		if _, used := k.nodes[id]; !used {
			k.lastSocket = id
			return id
		}
	}
	return 0
}

// hasSocketNodes reports whether a socket has a node. The caller holds k.mu.
func (k *Kernel) hasSocketNodes() bool {
	for _, n := range k.nodes {
		if n.Kind == bpf.KindSocket {
			return true
		}
	}
	return false
}

// removeSocket lifts the node of a socket that has gone, or no longer needs one.
func (k *Kernel) removeSocket(id uint32, n bpf.Node) error {
	delete(k.nodes, id)
	n.Flags &^= bpf.NodeLive
	if err := k.obj.Nodes.Put(id, &n); err != nil {
		return fmt.Errorf("write node %d: %w", id, err)
	}
	err := errors.Join(k.index(id, n, false), k.clear(id, n.Generation))
	if err == nil && len(k.nodes) == 0 {
		return k.lastNodeWent()
	}
	return err
}
