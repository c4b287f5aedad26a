package pacing

import (
	"errors"
	"fmt"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Reserved implements enforce.Requests.
func (k *Kernel) Reserved() (out []enforce.SocketReservation, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasReserved() {
		return nil, nil
	}
	list, err := k.obj.ListSockets()
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	for _, r := range list {
		if s := k.reservedOf(r); s.SliceNS != 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// Asker implements enforce.Requests.
func (k *Kernel) Asker(number uint64) (s enforce.SocketReservation, found bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// AssignSockets also finds the device by which the socket sends.
	if err := k.obj.AssignSockets(); err != nil {
		return s, false, err
	}
	list, err := k.obj.ListSockets()
	if err != nil {
		return s, false, fmt.Errorf("list sockets: %w", err)
	}
	for _, r := range list {
		if r.State.ReserveAsked == number && r.Cookie != 0 {
			return k.reservedOf(r), true, nil
		}
	}
	return s, false, nil
}

// reservedOf returns a socket's reservation, and the link that it may reserve. The caller holds k.mu.
func (k *Kernel) reservedOf(r bpf.SocketRecord) enforce.SocketReservation {
	s := enforce.SocketReservation{Cookie: r.Cookie, UID: enforce.OwnerOf(r.State.Uid, k.ranges)}
	if link, ok := k.nodes[r.State.Link.Node]; ok && link.Generation == r.State.Link.Generation {
		s.Link = r.State.Link.Node
	}
	own, reserves := k.reservingNode(r)
	if !reserves {
		return s
	}
	s.SocketSlice = enforce.SocketSlice{PeriodNS: own.PeriodNs, SliceNS: own.SliceNs, Extra: own.Flags&bpf.NodeSliceOnly == 0}
	s.Link = own.ScopeId
	s.BytesPerSec = own.Limits[enforce.OwnerAdmin][enforce.Up].MinBytesPerSec
	return s
}

// Reserve implements enforce.Requests.
func (k *Kernel) Reserve(r enforce.SocketReservation) error {
	var spec enforce.NodeSpec
	for _, s := range k.SocketNodes() {
		if s.Subject == r.Cookie {
			spec = s
		}
	}
	if spec.ID == 0 && r.SliceNS == 0 {
		return nil
	}
	if spec.ID == 0 {
		spec = enforce.NodeSpec{ID: k.FreeSocketNode(), Kind: enforce.KindSocket, Subject: r.Cookie}
	}
	if spec.ID == 0 {
		return ErrTooManySockets
	}
	spec.Guarantee, spec.PeriodNS, spec.SliceNS, spec.Link, spec.SliceOnly = r.BytesPerSec, r.PeriodNS, r.SliceNS, r.Link, !r.Extra
	if r.SliceNS == 0 {
		spec.Guarantee, spec.PeriodNS, spec.SliceNS, spec.Link, spec.SliceOnly = 0, 0, 0, 0, false
		if spec.Ceilings == (enforce.NodeSpec{}).Ceilings {
			return errors.Join(k.RemoveNode(spec.ID), k.AssignSockets())
		}
	}
	return errors.Join(k.SetNode(spec), k.AssignSockets())
}

// reservingNode returns a socket's own node, and whether that node has a reservation. The caller holds k.mu.
func (k *Kernel) reservingNode(r bpf.SocketRecord) (own bpf.Node, reserves bool) {
	own = k.nodes[r.State.Own.Node]
	return own, own.Kind == bpf.KindSocket && own.Generation == r.State.Own.Generation && own.Subject == r.Cookie && own.PeriodNs != 0
}

func (k *Kernel) hasReserved() bool {
	for _, n := range k.nodes {
		if n.Kind == bpf.KindSocket && n.PeriodNs != 0 {
			return true
		}
	}
	return false
}
