package daemon

import (
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/source/destinations"
	"github.com/netnice/netnice/internal/source/peers"
)

// peerHost is what limits for each peer need from the daemon. The caller of all methods but Update holds d.mu.
type peerHost struct{ *Daemon }

var _ peers.Host = peerHost{}

// isEach reports whether a node holds the limit that applies to each address by itself.
func (n *node) isEach() bool { return n.to != nil && n.to.selector.Each }

// Update implements peers.Host.
func (h peerHost) Update(change func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDown {
		return nil
	}
	return change()
}

// Limits implements peers.Host.
func (h peerHost) Limits(yield func(peers.Limit) bool) {
	for n := range h.nodes.All() {
		if !n.isEach() || n.to.leaving {
			continue
		}
		is := peers.Limit{
			ID: n.id, Subject: n.res.Subject, Selector: n.to.selector, OnlyUser: n.IsOnlyUsers(), User: n.userUID,
			Request: n.Requested[n.owner()], Stored: plan.Stored(n.planned(), &n.Wanted, h.machine()),
		}
		if !yield(is) {
			return
		}
	}
}

// Peers implements peers.Host.
func (h peerHost) Peers(yield func(peers.Peer) bool) {
	for _, n := range h.nodes.Sorted() {
		if n.to != nil && n.to.each != 0 && !yield(peers.Peer{ID: n.id, Of: n.to.each, Request: n.Requested[n.owner()]}) {
			return
		}
	}
}

// peerOf returns the part of the traffic that one peer of a limit is, and who owns that limit.
func peerOf(of *node, selector destination.Selector) (destinations.Part, auth.Actor) {
	_, under, _ := destination.Parse(of.res.Subject.ID) // it was read before
	p := destinations.Part{Selector: selector, Under: identity.Host(), Subject: selector.Subject(under)}
	by := auth.Actor{}
	if of.IsOnlyUsers() {
		by = auth.Actor{UID: of.userUID}
		p.Under = identity.User(of.userUID)
	}
	if of.to.scope != nil {
		p.Under = of.to.scope.res
	}
	return p, by
}

// IsLimited implements peers.Host.
func (h peerHost) IsLimited(id uint32, selector destination.Selector) bool {
	p, by := peerOf(h.nodes.Get(id), selector)
	return h.destinations.Own(p.Subject, by).ID != 0
}

// Add implements peers.Host.
func (h peerHost) Add(id uint32, selector destination.Selector, pooled uint32) (uint32, error) {
	of := h.nodes.Get(id)
	p, by := peerOf(of, selector)
	if err := h.quota(by, true); err != nil {
		return 0, err
	}
	next := newPart(p.Fresh(by))
	next.to.each = of.id
	next.Requested[of.owner()] = of.Requested[of.owner()]
	if err := h.destinations.Admit(next.forDestinations(), p); err != nil {
		return 0, err
	}
	next.id = pooled
	var n *node
	err := h.update(func(tx *transaction) error {
		return h.destinations.Add(tx, next.forDestinations(), p, func(under uint32) (err error) {
			next.to.scope = h.nodes.Get(under)
			n, err = tx.put(nil, &next)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	h.log.Debug("address met", "subject", n.res.Subject.String(), "of", of.res.Subject.String(), "node", n.id)
	return n.id, nil
}

// Change implements peers.Host.
func (h peerHost) Change(id uint32, is limit.Limit) error {
	n := h.nodes.Get(id)
	next := *n
	next.Requested[n.owner()] = is
	_, err := h.commit(n, &next)
	return err
}

// End implements peers.Host.
func (h peerHost) End(id uint32) error {
	return h.update(func(tx *transaction) error { return tx.end(tx.d.nodes.Get(id)) })
}

// FreeID implements peers.Host.
func (h peerHost) FreeID() uint32 { return h.freeID() }

// Count implements peers.Host.
func (h peerHost) Count() int { return h.nodes.Len() }

// CountsAs implements peers.Host.
func (h peerHost) CountsAs(uid uint32) uint32 { return h.countsAs(uid) }

// peerSource returns the source of limits for each peer.
func (d *Daemon) peerSource() *peers.Source {
	return peers.New(peers.Options{
		Log: d.log, Kernel: d.kernel, Host: peerHost{d}, Figures: d.observe.Figures, Now: d.now,
	})
}
