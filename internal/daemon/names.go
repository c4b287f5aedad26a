package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
)

const (
	// namesEvery is the interval between two lookups of a host name. No connection waits for a lookup.
	namesEvery = time.Minute
	// namePatience bounds the duration of one lookup.
	namePatience = 5 * time.Second
	// mostNames bounds the names of one limit. mostAddresses bounds the addresses of one name.
	mostNames, mostAddresses = 16, 64
)

// found holds the addresses of a name. It is never changed in place.
type found struct {
	addresses []netip.Addr
	problem   string // why addresses are those of an earlier lookup, "" if they are current
}

// lookupNames asks the machine's resolver for IPv4 and IPv6 addresses.
func lookupNames(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// lookup looks a name up once. It returns the addresses in ascending order, so that two answers can be compared.
func (d *Daemon) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	list, err := d.opts.LookupNames(ctx, name)
	if err != nil {
		return nil, err
	}
	for i, a := range list {
		list[i] = a.Unmap().WithZone("")
	}
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("%s has no address", name)
	case len(list) > mostAddresses:
		return nil, fmt.Errorf("%s has %d addresses, more than the %d that a limit follows", name, len(list), mostAddresses)
	}
	return list, nil
}

// learnNames looks up names that the daemon does not know yet. It runs without the lock, and changes nothing in force.
func (d *Daemon) learnNames(ctx context.Context, names []string) (map[string]found, error) {
	if len(names) > mostNames {
		return nil, destination.Refused("%d names: one limit may have %d", len(names), mostNames)
	}
	list := map[string]found{}
	for _, name := range names {
		addresses, err := d.lookup(ctx, name)
		if err != nil {
			return nil, &api.Error{
				Code: api.CodeNotFound, Message: fmt.Sprintf("the name %s is not found: %v", name, err),
				Hint: "getent ahosts " + name + "; or name addresses: --to 192.0.2.7", Cause: err,
			}
		}
		list[name] = found{addresses: addresses}
	}
	return list, nil
}

// resolved returns a copy of a selector that also has the addresses of its names. The caller holds d.mu.
func (d *Daemon) resolved(s destination.Selector) destination.Selector {
	if len(s.Names) == 0 {
		return s
	}
	s.Prefixes = slices.Clone(s.Prefixes)
	for _, name := range s.Names {
		for _, a := range d.names[name].addresses {
			s.Prefixes = append(s.Prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return s
}

// keepNames looks all names up again at each interval, until ctx ends.
func (d *Daemon) keepNames(ctx context.Context) {
	tick := time.NewTicker(d.opts.NamesEvery)
	defer tick.Stop()
	for {
		d.lookAtNames(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// namesWanted returns the names that existing limits use. The caller holds d.mu.
func (d *Daemon) namesWanted() map[string]bool {
	wanted := map[string]bool{}
	for n := range d.nodes.All() {
		if n.to == nil {
			continue
		}
		for _, name := range n.to.selector.Names {
			wanted[name] = true
		}
	}
	return wanted
}

// lookAtNames looks up all names that limits use. A name that is not found keeps its last addresses.
func (d *Daemon) lookAtNames(ctx context.Context) {
	d.mu.Lock()
	wanted := d.namesWanted()
	for name := range d.names {
		if !wanted[name] {
			delete(d.names, name)
			d.touchShared()
		}
	}
	d.mu.Unlock()
	for name := range wanted {
		addresses, err := d.lookup(ctx, name)
		if ctx.Err() != nil {
			return
		}
		d.nameFound(name, addresses, err)
	}
}

// setName stores the addresses of a name. The caller holds d.mu.
func (d *Daemon) setName(name string, f found) {
	d.names[name] = f
	d.touchShared()
}

// learnNames stores the addresses of names that a new limit needs.
func (tx *transaction) learnNames(names map[string]found) {
	d := tx.d
	for name, f := range names {
		was, known := d.names[name]
		d.setName(name, f)
		tx.OnFailure(func() error {
			if d.setName(name, was); !known {
				delete(d.names, name)
			}
			return nil
		})
	}
}

// nameFound stores the answer for a name, and updates the limits for that name.
func (d *Daemon) nameFound(name string, addresses []netip.Addr, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, known := d.names[name]
	if d.isDown || !d.namesWanted()[name] {
		return
	}
	is := found{addresses: addresses}
	if err != nil {
		is = found{addresses: was.addresses, problem: err.Error()}
	}
	if known && slices.Equal(is.addresses, was.addresses) && (is.problem == "") == (was.problem == "") {
		return
	}
	d.setName(name, is)
	if !slices.Equal(is.addresses, was.addresses) {
		d.outdateDestinations()
		d.followDestinations()
	}
	for _, n := range d.nodes.Sorted() {
		if n.to == nil || !slices.Contains(n.to.selector.Names, name) {
			continue
		}
		n.to.learn(d.names)
		d.tellOf(n, api.EventNameChanged, name+": "+is.text())
		d.writeChange(false, n.change())
	}
	d.log.Info("a name was looked up", "name", name, "addresses", len(is.addresses), "problem", is.problem)
}

// text describes the addresses of a name in words for people.
func (f found) text() string {
	texts := make([]string, len(f.addresses))
	for i, a := range f.addresses {
		texts[i] = a.String()
	}
	out := strings.Join(texts, ", ")
	switch {
	case f.problem != "" && out == "":
		return "no address known: " + f.problem
	case f.problem != "":
		return out + ", as before: " + f.problem
	}
	return out
}

// learn notes the addresses of a node's names. The state file keeps them for the next daemon.
func (t *toward) learn(names map[string]found) {
	t.names = map[string][]netip.Addr{}
	for _, name := range t.selector.Names {
		t.names[name] = names[name].addresses
	}
}
