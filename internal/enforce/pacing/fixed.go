package pacing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// Kernels before 6.12 cannot switch on the callbacks of an open connection. Such a connection is paced at a fixed
// rate. This file computes that rate as the clocks would divide the limits. Each node divides its limit among
// programs and nodes by weight and guarantee. Each of these divides its part equally among its connections that
// have something to send.

// sharing is a connection that has something to send, with the limits on its path.
type sharing struct {
	hops []sharingHop
	want float64 // bytes/s that the inner limits leave it
}

// sharingHop is a limit on a connection's path, with the child that shares it: a program or a node.
type sharingHop struct {
	node   uint32
	rate   float64 // bytes/s
	child  uint64
	weight uint32
	min    float64 // guaranteed, bytes/s
	only   bool    // it gets no more than the guarantee
}

// divide sets the want of each connection to the rate that it gets. It begins with the innermost limits.
func divide(list []*sharing) {
	depth := map[uint32]int{}
	for _, s := range list {
		for i, h := range s.hops {
			depth[h.node] = max(depth[h.node], i)
		}
	}
	nodes := make([]uint32, 0, len(depth))
	for node := range depth {
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b uint32) int { return cmp.Or(cmp.Compare(depth[a], depth[b]), cmp.Compare(a, b)) })
	for _, node := range nodes {
		divideAt(node, list)
	}
}

// divideAt divides one limit among the connections.
func divideAt(node uint32, list []*sharing) {
	rate := 0.0
	parts := map[uint64]*part{}
	of := map[uint64][]*part{} // connections, by child
	var who []*sharing
	var theirs []*part
	var children []*part
	for _, s := range list {
		i := slices.IndexFunc(s.hops, func(h sharingHop) bool { return h.node == node })
		if i < 0 {
			continue
		}
		h := s.hops[i]
		rate = h.rate
		c := parts[h.child]
		if c == nil {
			c = &part{weight: float64(h.weight), min: h.min}
			parts[h.child] = c
			children = append(children, c)
		}
		c.want += s.want
		if h.only {
			c.want = min(c.want, h.min)
		}
		own := &part{weight: 1, want: s.want}
		of[h.child] = append(of[h.child], own)
		who, theirs = append(who, s), append(theirs, own)
	}
	fill(rate, children)
	for child, c := range parts {
		fill(c.has, of[child])
	}
	for i, s := range who {
		s.want = theirs[i].has
	}
}

// part is a part of a rate, in bytes/s.
type part struct {
	weight, min, want, has float64
}

// fill divides a rate. Each part gets its guarantee; the rest goes by weight to the parts that want more.
func fill(rate float64, parts []*part) {
	left, open := rate, slices.Clone(parts)
	for _, p := range parts {
		p.has = min(p.min, p.want, left)
		left -= p.has
	}
	for len(open) > 0 {
		weights := 0.0
		for _, p := range open {
			weights += p.weight
		}
		each, before := left/weights, len(open)
		open = slices.DeleteFunc(open, func(p *part) bool {
			need := p.want - p.has
			if need > each*p.weight {
				return false
			}
			p.has += need
			left -= need
			return true
		})
		if len(open) == before {
			for _, p := range open {
				p.has += each * p.weight
			}
			return
		}
	}
}

// sharing returns a socket's want and limits. The result is false if the socket has nothing to send, or no limit.
func (k *Kernel) sharing(r bpf.SocketRecord) (*sharing, bool) {
	if r.Protocol == unix.IPPROTO_UDP || r.Protocol == unix.IPPROTO_MPTCP || r.UnsentBytes == 0 {
		return nil, false
	}
	s := &sharing{want: math.Inf(1)}
	if own := r.State.RateBytesPerSec; own > 0 {
		s.want = float64(own)
	}
	k.climb(r, func(hop bpf.Hop, n bpf.Node, child uint64, weight, promised uint32) {
		rate := uint64(0)
		for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
			if r, _ := holding(n, d); r > 0 && (rate == 0 || r < rate) {
				rate = r
			}
		}
		if r.State.Flags&bpf.SocketLoopback != 0 && n.Flags&bpf.NodeLoopback == 0 {
			rate = 0
		}
		if rate > 0 {
			h := sharingHop{node: hop.Node, rate: float64(rate), child: child, weight: weight}
			if p, ok := k.nodes[promised]; ok && promised != 0 && (p.ScopeId == 0 || p.ScopeId == hop.Node) {
				h.min, h.only = float64(minUp(p)), p.Flags&bpf.NodeSliceOnly != 0
			}
			s.hops = append(s.hops, h)
		}
	})
	return s, len(s.hops) > 0
}

// putFixed writes the rates of all fixed-rate connections. The list has to hold every socket.
func (k *Kernel) putFixed(list []bpf.SocketRecord) error {
	if len(k.fixed) == 0 && !slices.ContainsFunc(list, isFixed) {
		return nil
	}
	var all []*sharing
	of := map[uint64]*sharing{}
	for _, r := range list {
		s, ok := k.sharing(r)
		if !ok {
			continue
		}
		all = append(all, s)
		if isFixed(r) {
			of[r.Cookie] = s
		}
	}
	divide(all)
	for cookie := range k.fixed {
		if of[cookie] != nil {
			continue
		}
		if err := k.dropFixedOf(cookie); err != nil {
			return err
		}
	}
	for cookie, s := range of {
		rate := max(uint64(s.want), 1)
		if err := k.obj.FixedRates.Put(cookie, rate); errors.Is(err, unix.E2BIG) {
			return nil // the map is full; the other connections keep equal parts
		} else if err != nil {
			return fmt.Errorf("write the rate of a connection: %w", err)
		}
		k.fixed[cookie] = true
	}
	return nil
}

// readFixed reads the rates that an earlier daemon has written.
func (k *Kernel) readFixed() error {
	var cookie, rate uint64
	all := k.obj.FixedRates.Iterate()
	for all.Next(&cookie, &rate) {
		k.fixed[cookie] = true
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read the rates of connections: %w", err)
	}
	return nil
}

func isFixed(r bpf.SocketRecord) bool { return r.State.Flags&bpf.SocketStatic != 0 }

// dropFixed gives these sockets equal parts until the next division of all limits.
func (k *Kernel) dropFixed(list []bpf.SocketRecord) error {
	for _, r := range list {
		if k.fixed[r.Cookie] {
			if err := k.dropFixedOf(r.Cookie); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Kernel) dropFixedOf(cookie uint64) error {
	delete(k.fixed, cookie)
	if err := k.obj.FixedRates.Delete(cookie); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the rate of a connection: %w", err)
	}
	return nil
}
