package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

const (
	// placeIdle is for how long nothing limited has to have been seen in a
	// namespace until it is let go of.
	placeIdle = 500 * time.Millisecond
	// placeRetry is the pause after a failure.
	placeRetry = 5 * time.Second
)

// look finds the namespaces in which something limited lives, makes them places,
// and lets go of those in which nothing does any more.
func (s *shaper) look() error {
	s.looks++
	found, err := s.obj.FindPlaces(s.looks, s.sockets)
	if err != nil {
		return err
	}
	if s.portsKnown == 0 { // that look has marked the ports of all limited sockets
		s.portsKnown = 1
		if err := s.ensurePair(); err != nil {
			return err
		}
	}
	paths := map[uint32]string{}
	strays := map[uint32]bool{} // of a socket there, whose processes are elsewhere
	for _, f := range found {
		if f.Pid != 0 {
			paths[f.Netns] = fmt.Sprintf("/proc/%d/ns/net", f.Pid)
		} else {
			strays[f.Netns] = true
		}
	}
	for ns := range strays {
		if paths[ns] == "" {
			paths[ns] = netnamespace.PathOf(ns)
		}
	}
	links := s.linkPlaces()
	for ns, path := range links {
		if s.places[ns] == nil {
			paths[ns] = path
		}
	}
	var errs []error
	now := time.Now()
	for ns, path := range paths {
		p, err := s.newPlace(ns, path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p == nil {
			continue
		}
		s.places[ns] = p
		if p.begin(); p.broken == nil {
			errs = append(errs, p.visitWindows())
		}
	}
	for _, p := range s.places {
		var entry bpf.Place
		if err := s.obj.Places.Lookup(p.ns, &entry); err != nil {
			errs = append(errs, fmt.Errorf("look at network namespace %d: %w", p.ns, err))
			continue
		}
		switch {
		case entry.Look == s.looks || links[p.ns] != "":
			p.seen = now
		case now.Sub(p.seen) > placeIdle:
			errs = append(errs, p.remove())
			continue
		}
		if !p.begun || p.broken != nil && now.Sub(p.tried) > placeRetry {
			p.begin()
		}
	}
	return errors.Join(errs...)
}

// linkPlaces are the namespaces of limited devices, with a path of each: whatever lives there
// may receive by one.
func (s *shaper) linkPlaces() map[uint32]string {
	paths := map[uint32]string{}
	for ns := range s.linkNamespaces() {
		switch {
		case ns == s.home:
			paths[ns] = "/proc/self/ns/net"
		case s.places[ns] != nil:
			paths[ns] = fmt.Sprintf("/proc/self/fd/%d", s.places[ns].file.Fd())
		default:
			if path := netnamespace.PathOf(ns); path != "" {
				paths[ns] = path
			}
		}
	}
	return paths
}

// linkNamespaces are those namespaces, each once: to find one that is no place takes a look at all
// processes.
func (s *shaper) linkNamespaces() map[uint32]bool {
	list := map[uint32]bool{}
	for _, n := range s.nodes {
		if n.spec.Kind == enforce.KindLink {
			ns, _ := enforce.LinkOf(n.spec.Subject)
			list[ns] = true
		}
	}
	return list
}

// begin makes everything that is needed in a place, or gives it up for a while.
func (p *place) begin() {
	p.begun = true
	if err := p.ensure(); err != nil {
		p.fail(err)
		return
	}
	p.broken = nil
}

// brokenFor says why a process cannot be limited where it is.
func (s *shaper) brokenFor(spec enforce.NodeSpec) error {
	if spec.Kind != enforce.KindTree {
		return nil
	}
	ns, err := netnamespace.Of(fmt.Sprint(spec.Subject))
	if err != nil {
		return nil //nolint:nilerr // it has ended; its children live on
	}
	if p := s.places[ns]; p != nil {
		return p.broken
	}
	return nil
}

// resumePlaces takes over what an earlier process had made. Places that have gone
// meanwhile, or whose way home has changed, are forgotten.
func (s *shaper) resumePlaces(was bpf.Shaper) error {
	entries := map[uint32]bpf.Place{}
	var ns uint32
	var entry bpf.Place
	it := s.obj.Places.Iterate()
	for it.Next(&ns, &entry) {
		entries[ns] = entry
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the network namespaces: %w", err)
	}
	moved := was.Netns != 0 && was.Netns != s.home
	var errs []error
	for ns, entry := range entries {
		p, err := s.newPlace(ns, netnamespace.PathOf(ns))
		if err != nil {
			errs = append(errs, err)
		}
		if p != nil {
			p.link, s.places[ns] = entry, p
			s.looks = max(s.looks, entry.Look)
			continue
		}
		errs = append(errs, s.forget(ns, entry))
	}
	errs = append(errs, s.readDevices())
	if moved {
		for _, p := range s.places {
			errs = append(errs, p.remove())
		}
		errs = append(errs, s.leaveHome(was.Netns))
	}
	return errors.Join(append(errs, s.unpinLost())...)
}

// unpinLost detaches what is attached in namespaces that are no places.
func (s *shaper) unpinLost() error {
	known := map[string]bool{}
	for _, p := range s.places {
		for index := range p.devices {
			known[p.devicePin(index)] = true
		}
	}
	var errs []error
	for _, name := range s.obj.Stale(devicePrefix) {
		if !known[name] {
			errs = append(errs, s.obj.Unpin(name))
		}
	}
	return errors.Join(errs...)
}

// leaveHome removes the pair from the namespace of an earlier process.
func (s *shaper) leaveHome(ns uint32) error {
	path := netnamespace.PathOf(ns)
	if path == "" {
		return nil // it went with the namespace
	}
	return netnamespace.Within(path, func() error { return removeByAlias(s.pair.alias) })
}

// forget removes what is known of a namespace that cannot be entered any more.
func (s *shaper) forget(ns uint32, entry bpf.Place) error {
	errs := []error{gone(s.obj.Places.Delete(ns))}
	if entry.HomeIfindex != 0 {
		link, err := s.pair.ours(s.pair.nl, entry.HomeIfindex)
		if err == nil && link != nil {
			err = s.pair.nl.LinkDel(link)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readDevices learns which devices an earlier process had entered.
func (s *shaper) readDevices() error {
	var key bpf.DeviceKey
	var d bpf.Device
	var lost []bpf.DeviceKey
	it := s.obj.Devices.Iterate()
	for it.Next(&key, &d) {
		if p := s.places[key.Netns]; p != nil {
			p.devices[int(key.Ifindex)] = d
			s.slots.take(d.Slot)
			continue
		}
		lost = append(lost, key)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the devices: %w", err)
	}
	var errs []error
	for _, key := range lost {
		var d bpf.Device
		if err := s.obj.Devices.Lookup(key, &d); err == nil {
			errs = append(errs, s.obj.Slots.Put(d.Slot, &bpf.Slot{}))
		} else if !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
		errs = append(errs, gone(s.obj.Devices.Delete(key)))
	}
	return errors.Join(errs...)
}
