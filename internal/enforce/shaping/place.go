package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/bpf"
)

// place is a network namespace in which something limited lives: its devices are
// looked at. One in which nothing limited lives is let go of soon.
type place struct {
	namespace
	s        *shaper
	link     bpf.Place // as the kernel side knows it
	linked   bool      // packets are led on from both ends of the link
	devices  map[int]bpf.Device
	attached map[int]bool
	refused  int      // devices: no slot is left
	entered  bool     // devices were followed before
	rest     rest     // devices that were left
	watch    *watcher // at home the shaper has it
	seen     time.Time
	begun    bool  // else an earlier process's, to be taken over
	broken   error // why nothing is limited here
	tried    time.Time
}

// newPlace opens a namespace; nil without an error if it has gone.
func (s *shaper) newPlace(ns uint32, path string) (*place, error) {
	p := &place{s: s, devices: map[int]bpf.Device{}, attached: map[int]bool{}, seen: time.Now()}
	p.link.NetnsId = homeID
	if ns == s.home { // where the pair is
		p.namespace = namespace{ns: ns, nl: s.pair.nl}
		return p, nil
	}
	n, err := openNamespace(ns, path, func(owner uint32) (count int) {
		for _, o := range s.places {
			if o.owner == owner {
				count++
			}
		}
		return count
	})
	if errors.Is(err, errTooMany) {
		s.refused++
		return nil, nil //nolint:nilnil // as if it had gone
	}
	if n == nil {
		return nil, err
	}
	p.namespace = *n
	return p, nil
}

// ensure makes what is missing here: also what somebody has removed.
func (p *place) ensure() error {
	if err := p.ensureLink(); err != nil {
		return err
	}
	if p.watch == nil && !p.isHome() {
		err := p.within(func() (err error) {
			p.watch, err = watchDevices(func() { p.s.changed(p) })
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := p.followDevices(); err != nil {
		return err
	}
	return p.put() // until then receive windows alone hold the limit
}

// put writes the place for the kernel side.
func (p *place) put() error {
	p.link.Look = p.s.looks
	if err := p.s.obj.Places.Put(p.ns, &p.link); err != nil {
		return fmt.Errorf("enter network namespace %d: %w", p.ns, err)
	}
	return nil
}

// fail gives a place up for a while; its traffic is not limited. The entry
// without a link keeps the kernel side from asking for it at each socket.
func (p *place) fail(err error) {
	if p.broken == nil || p.broken.Error() != err.Error() {
		p.s.log.Warn("what comes in to a network namespace is not limited", "netns", p.ns, "err", err)
	}
	p.broken, p.tried = err, time.Now()
	if err := p.put(); err != nil {
		p.s.log.Warn("a network namespace is asked for again and again", "netns", p.ns, "err", err)
	}
}

// close leaves everything as it is for a successor.
func (p *place) close() error {
	if p.watch != nil {
		p.watch.close()
		p.watch = nil
	}
	if p.isHome() {
		return nil
	}
	p.nl.Close()
	return p.file.Close()
}

// remove leaves nothing.
func (p *place) remove() error {
	errs := []error{gone(p.s.obj.Places.Delete(p.ns))}
	there, err := p.present()
	errs = append(errs, err)
	for index := range p.devices {
		errs = append(errs, p.leave(index, there[index]))
	}
	errs = append(errs, p.removeLink(), p.close())
	delete(p.s.places, p.ns)
	return errors.Join(errs...)
}
