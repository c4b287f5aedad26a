package shaping

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
	"github.com/netnice/netnice/internal/netnamespace"
)

const (
	// placeIdle is how long a network namespace must have had no limited process or socket before its ingress state is
	// removed.
	placeIdle = 500 * time.Millisecond
	// placeRetry is the pause after a failure.
	placeRetry = 5 * time.Second
)

// look finds the network namespaces in which limited processes or sockets live, and makes ingress state (a place) for
// each. It removes the places of namespaces in which none live any more.
func (s *shaper) look() error {
	s.looks++
	found, err := s.obj.FindPlaces(s.looks, s.sockets)
	if err != nil {
		return err
	}
	if s.portsKnown == 0 { // FindPlaces has marked the ports of all limited sockets
		s.portsKnown = 1
		if err := s.ensurePair(); err != nil {
			return err
		}
	}
	links := s.linkPlaces()
	paths := namespacePaths(found)
	for ns, path := range links {
		if s.places[ns] == nil {
			paths[ns] = path
		}
	}
	now := time.Now()
	return errors.Join(s.addPlaces(paths), s.reviewPlaces(links, now))
}

// namespacePaths returns a path of each network namespace that was found: of a process there, or, for sockets whose
// processes live elsewhere, of the namespace itself ("" if there is none).
func namespacePaths(found []bpf.Found) map[uint32]string {
	paths := map[uint32]string{}
	strays := map[uint32]bool{}
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
	return paths
}

// addPlaces makes ingress state for network namespaces that have none.
func (s *shaper) addPlaces(paths map[uint32]string) error {
	var errs []error
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
	return errors.Join(errs...)
}

// reviewPlaces removes the ingress state of namespaces in which nothing limited lives any more, and tries again where
// making the state has failed. links are the namespaces of limited devices.
func (s *shaper) reviewPlaces(links map[uint32]string, now time.Time) error {
	var errs []error
	for _, p := range s.places {
		var entry bpf.Place
		if err := s.obj.Places.Lookup(p.NS, &entry); err != nil {
			errs = append(errs, fmt.Errorf("look at network namespace %d: %w", p.NS, err))
			continue
		}
		switch {
		case entry.Look == s.looks || links[p.NS] != "":
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

// linkPlaces returns the network namespaces of limited devices, with a path of each. Any socket there may receive by
// such a device.
func (s *shaper) linkPlaces() map[uint32]string {
	paths := map[uint32]string{}
	for ns := range s.linkNamespaces() {
		switch {
		case ns == s.home:
			paths[ns] = "/proc/self/ns/net"
		case s.places[ns] != nil:
			paths[ns] = s.places[ns].Path()
		default:
			if path := netnamespace.PathOf(ns); path != "" {
				paths[ns] = path
			}
		}
	}
	return paths
}

// linkNamespaces returns the network namespaces of limited devices, each once: to find the path of a namespace without
// a place takes a look at all processes.
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

// begin makes everything that a place needs, or gives the place up for a while.
func (p *place) begin() {
	p.begun = true
	if err := p.ensure(); err != nil {
		p.fail(err)
		return
	}
	p.broken = nil
}

// brokenFor returns why the ingress of a process cannot be limited in its network namespace, nil if it can.
func (s *shaper) brokenFor(spec enforce.NodeSpec) error {
	if spec.Kind != enforce.KindTree {
		return nil
	}
	ns, err := netnamespace.Of(fmt.Sprint(spec.Subject))
	if err != nil {
		return nil //nolint:nilerr // the process has ended; its children live on
	}
	if p := s.places[ns]; p != nil {
		return p.broken
	}
	return nil
}

// resumePlaces takes over the places that an earlier process made. It forgets places whose namespace has gone
// meanwhile, and removes all if that process had its pair in another namespace.
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

// unpinLost detaches the programs in network namespaces that have no place.
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

// leaveHome removes the pair of an earlier process from the namespace of that process.
func (s *shaper) leaveHome(ns uint32) error {
	path := netnamespace.PathOf(ns)
	if path == "" {
		return nil // it went with the namespace
	}
	return netnamespace.Within(path, func() error { return queuepair.RemoveByAlias(s.pair.Alias) })
}

// forget removes the entries of a network namespace that cannot be entered any more, and its link at home.
func (s *shaper) forget(ns uint32, entry bpf.Place) error {
	errs := []error{gone(s.obj.Places.Delete(ns))}
	if entry.HomeIfindex != 0 {
		link, err := s.pair.Ours(s.pair.NL, entry.HomeIfindex)
		if err == nil && link != nil {
			err = s.pair.NL.LinkDel(link)
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
			s.slots.Take(d.Slot)
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
