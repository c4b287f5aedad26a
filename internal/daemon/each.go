package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/source/destinations"
)

// A limit for each address of a destination ("/each") consists of two parts. A limit on all of the addresses,
// which is never reached, finds them. Each found address has a node with the requested limit for each. The kernel side
// takes that node from the preallocated ones (spare_nodes.go) and reports it. The node ends a minute after the last
// connection and byte.

const (
	eachIdle = time.Minute
	// mostEach is the most addresses with nodes for one limit; further addresses are not limited.
	mostEach = 2048
	// eachPause is the least time between two passes. The pauses keep the passes within a fifth of a processor.
	// eachAtOnce is how many nodes one pass makes.
	eachPause, eachRest, eachAtOnce = 20 * time.Millisecond, 4, 64
)

// isEach reports whether a node holds the limit that applies to each address by itself.
func (n *node) isEach() bool { return n.to != nil && n.to.selector.Each }

func (d *Daemon) wakeEach() {
	select {
	case d.eachMet <- struct{}{}:
	default:
	}
}

// keepEach makes nodes for new addresses, and removes those of idle ones.
func (d *Daemon) keepEach(ctx context.Context, tick <-chan time.Time) {
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-d.eachMet:
		}
		began := time.Now()
		some, err := d.lookAtEach()
		pause := max(eachPause, eachRest*time.Since(began))
		d.complainOnce(&failing, "limits for each address were not looked after", err)
		if !some {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// lookAtEach looks at the addresses that limits for each of them have met. It reports whether there are such limits.
func (d *Daemon) lookAtEach() (some bool, err error) {
	peers := map[uint32][]enforce.Peer{}
	d.mu.Lock()
	some = len(d.stock) > 0
	for n := range d.nodes.All() {
		some = some || n.isEach() || n.to != nil && n.to.each != 0
		if n.isEach() && !n.to.leaving {
			peers[n.id] = nil
		}
	}
	d.mu.Unlock()
	if !some {
		return false, nil
	}
	var errs []error
	for id := range peers {
		list, err := d.kernel.Peers(id)
		if err != nil {
			errs = append(errs, err)
		}
		peers[id] = list
	}
	now, err := d.observe.Figures()
	if err != nil {
		return true, errors.Join(append(errs, err)...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return false, nil
	}
	errs = append(errs, d.tendEach(now))
	for id, list := range peers {
		if n := d.nodes.Get(id); n != nil && n.isEach() && !n.to.leaving {
			errs = append(errs, d.meetEach(n, list), d.stockUp(n))
		}
	}
	return true, errors.Join(errs...)
}

// tendEach updates the present addresses' nodes to the request, and ends unused ones. The caller holds d.mu.
func (d *Daemon) tendEach(now observe.Sample) error {
	errs := []error{d.sellOff()}
	for _, n := range d.nodes.Sorted() {
		if n.to == nil || n.to.each == 0 {
			continue
		}
		of := d.nodes.Get(n.to.each)
		stats, known := now.Nodes[n.id]
		if volume := stats.Bytes + stats.Down.Bytes; !known || volume != n.to.volume || now.Backlogs[n.id].Sockets > 0 || n.to.usedAt.IsZero() {
			n.to.volume, n.to.usedAt = volume, time.Now()
		}
		if of == nil || !of.isEach() || of.to.leaving || time.Since(n.to.usedAt) > eachIdle {
			errs = append(errs, d.update(func(tx *transaction) error { return tx.end(n) }))
			continue
		}
		if want := of.Requested[of.owner()]; n.Requested[of.owner()] != want {
			next := *n
			next.Requested[of.owner()] = want
			_, err := d.commit(n, &next)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// meetEach makes nodes for addresses without one. The caller holds d.mu.
func (d *Daemon) meetEach(of *node, peers []enforce.Peer) error {
	count, added := 0, 0
	for n := range d.nodes.All() {
		if n.to != nil && n.to.each == of.id {
			count++
		}
	}
	met := map[netip.Prefix]bool{}
	slices.SortFunc(peers, func(a, b enforce.Peer) int { return int(b.Node) - int(a.Node) }) // those with a node first
	var errs []error
	for _, p := range peers {
		selector := of.to.selector.Peer(p.Address)
		if met[selector.Prefixes[0]] || p.Address.IsUnspecified() {
			continue // the next pass lifts its preallocated node, if it has one
		}
		met[selector.Prefixes[0]] = true
		if count >= mostEach {
			errs = append(errs, request.Full("as many addresses are met", mostEach, "name a smaller prefix: netnice ls"))
			break
		}
		made, err := d.addEach(of, selector, p.Node)
		if err != nil {
			errs = append(errs, err)
		}
		if made {
			count++
			added++
		}
		if added == eachAtOnce {
			d.wakeEach() // others wait for the lock
			break
		}
	}
	return errors.Join(errs...)
}

// addEach makes the node of one address, unless it has one. If the kernel side has given the address a preallocated
// node, it uses that one. The caller holds d.mu.
func (d *Daemon) addEach(of *node, selector destination.Selector, got uint32) (made bool, err error) {
	p := destinations.Part{Selector: selector, Under: identity.Host(), Subject: selector.Subject(d.underEach(of))}
	by := auth.Actor{}
	if of.IsOnlyUsers() {
		by = auth.Actor{UID: of.userUID}
		p.Under = identity.User(of.userUID)
	}
	if of.to.scope != nil {
		p.Under = of.to.scope.res
	}
	if d.destinations.Own(p.Subject, by).ID != 0 {
		return false, d.unstock(got)
	}
	if err := d.quota(by, true); err != nil {
		return false, err
	}
	next := newPart(p.Fresh(by))
	next.Requested[of.owner()] = of.Requested[of.owner()]
	next.to.each, next.to.usedAt = of.id, time.Now()
	if err := d.destinations.Admit(next.forDestinations(), p); err != nil {
		return false, err
	}
	if _, ok := d.stock[got]; ok {
		next.id = got
		delete(d.stock, got)
	}
	var n *node
	err = d.update(func(tx *transaction) error {
		return d.destinations.Add(tx, next.forDestinations(), p, func(under uint32) error {
			next.to.scope = d.nodes.Get(under)
			n, err = tx.put(nil, &next)
			return err
		})
	})
	if err != nil {
		return false, err
	}
	d.log.Debug("address met", "subject", n.res.Subject.String(), "of", of.res.Subject.String(), "node", n.id)
	return true, nil
}

// underEach returns the subject that a limit for each is under, as in its own subject.
func (d *Daemon) underEach(of *node) (under api.Subject) {
	_, under, _ = destination.Parse(of.res.Subject.ID) // it was read before
	return under
}
