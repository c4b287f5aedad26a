package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
)

// place is a network namespace in which a process or socket with limited ingress lives. The ingress program is on its
// devices. netnice removes a place soon after the last of these processes and sockets.
type place struct {
	netdevice.Namespace
	s        *shaper
	link     bpf.Place // the entry in the datapath's map
	linked   bool      // the programs on both ends of the link are attached
	devices  map[int]bpf.Device
	attached map[int]bool
	refused  int                // number of devices that got no slot
	entered  bool               // followDevices has run before
	rest     netdevice.Rest     // visits the devices that a turn has left
	watch    *netdevice.Watcher // nil at home: there the shaper watches
	seen     time.Time
	begun    bool  // begin has run; false for the place of an earlier process that is to be taken over
	broken   error // why ingress is not limited here, nil = it is limited
	tried    time.Time
}

// newPlace opens a namespace. It returns nil without an error if the namespace has gone, or its owner has too many.
func (s *shaper) newPlace(ns uint32, path string) (*place, error) {
	p := &place{s: s, devices: map[int]bpf.Device{}, attached: map[int]bool{}, seen: time.Now()}
	p.link.NetnsId = homeID
	if ns == s.home { // the namespace of the pair
		p.Namespace = netdevice.Home(ns, s.pair.NL)
		return p, nil
	}
	n, err := netdevice.Open(ns, path, func(owner uint32) (count int) {
		for _, o := range s.places {
			if o.Owner == owner {
				count++
			}
		}
		return count
	})
	if errors.Is(err, netdevice.ErrTooMany) {
		s.refused++
		return nil, nil //nolint:nilnil // the caller takes it for one that has gone
	}
	if n == nil {
		return nil, err
	}
	p.Namespace = *n
	return p, nil
}

// ensure makes all that the place needs and lacks, also if another program has removed it.
func (p *place) ensure() error {
	if err := p.ensureLink(); err != nil {
		return err
	}
	if p.watch == nil && !p.IsHome() {
		var err error
		if p.watch, err = p.Watch(func() { p.s.changed(p) }); err != nil {
			return err
		}
	}
	if err := p.followDevices(); err != nil {
		return err
	}
	return p.put() // until then only receive windows enforce the limit
}

// put writes the place into the datapath's map.
func (p *place) put() error {
	p.link.Look = p.s.looks
	if err := p.s.obj.Places.Put(p.NS, &p.link); err != nil {
		return fmt.Errorf("enter network namespace %d: %w", p.NS, err)
	}
	return nil
}

// fail gives up on a place for a while. Ingress there is not limited meanwhile. An entry in the map, even without a
// link, keeps the datapath from asking for the place at each socket.
func (p *place) fail(err error) {
	if p.broken == nil || p.broken.Error() != err.Error() {
		p.s.log.Warn("what comes in to a network namespace is not limited", "netns", p.NS, "err", err)
	}
	p.broken, p.tried = err, time.Now()
	if err := p.put(); err != nil {
		p.s.log.Warn("a network namespace is asked for again and again", "netns", p.NS, "err", err)
	}
}

// close closes the watch and the handles, and leaves everything in the kernel for a successor.
func (p *place) close() error {
	if p.IsHome() {
		return nil // the handle is the pair's, and the shaper watches
	}
	return p.Shut(&p.watch)
}

// remove detaches the programs in the namespace, removes its link, and forgets the place.
func (p *place) remove() error {
	errs := []error{gone(p.s.obj.Places.Delete(p.NS))}
	there, err := p.Present()
	errs = append(errs, err)
	for index := range p.devices {
		errs = append(errs, p.leave(index, there(index)))
	}
	errs = append(errs, p.removeLink(), p.close())
	delete(p.s.places, p.NS)
	return errors.Join(errs...)
}
