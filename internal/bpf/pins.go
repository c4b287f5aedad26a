package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// pins are the pinned maps and attachments of an object that is loaded beside the main one.
type pins struct {
	pinDir string
	mark   string               // the map whose pin says that all others are pinned
	own    map[string]*ebpf.Map // maps that are pinned, or will be
	pinned bool
	links  map[string]link.Link
}

func newPins(dir, mark string) pins {
	return pins{pinDir: dir, mark: mark, own: map[string]*ebpf.Map{}, links: map[string]link.Link{}}
}

func (o *Object) isPinned(name string) bool {
	_, err := os.Stat(filepath.Join(o.opts.PinDir, name))
	return err == nil
}

// shared returns the maps of this object that the other objects use, too.
func (o *Object) shared() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"nodes": o.Nodes, "clocks": o.Clocks, "classes": o.Classes, "sockets": o.Sockets, "tasks": o.Tasks,
		"users": o.Users, "cgroups": o.Cgroups, "policy": o.Policy, "subordinates": o.Subordinates, "faults": o.Faults, "events": o.Events,
		"ports_seen": o.PortsSeen, "port_owners": o.PortOwners, "buffers": o.Buffers, "unknown": o.Unknown, "socket_nodes": o.SocketNodes, "stateless_sockets": o.StatelessSockets, "stateless_noted": o.StatelessNoted, "stateless_users": o.StatelessUsers, "hooked": o.Hooked, "free_cgroups": o.FreeCgroups,
		"destinations": o.Destinations, "destination_uses": o.DestinationUses, "destination_memos": o.DestinationMemos, "links": o.Links, "queued_devices": o.QueuedDevices, "peers_met": o.PeersMet, "stored": o.Stored,
		"peers_noted": o.PeersNoted,
	}
}

// loadBeside loads an object that shares nodes, sockets and tasks with this one. It uses the loaded object's own maps
// as they are pinned in the same folder. If they are not pinned, the caller has to call Pin. loadBeside only reads
// this object, and may run concurrently with its other methods, except Close and Remove.
func (o *Object) loadBeside(spec *ebpf.CollectionSpec, p *pins) (*ebpf.Collection, error) {
	shared := o.shared()
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return o.missing[name] })
	p.pinned = o.isPinned(p.mark)
	for name, m := range spec.Maps {
		if shared[name] == nil && name[0] != '.' {
			p.own[name] = nil
			if p.pinned {
				m.Pinning = ebpf.PinByName
			}
		}
	}
	coll, err := loadInParts(spec, ebpf.CollectionOptions{
		Maps: ebpf.MapOptions{PinPath: p.pinDir}, MapReplacements: shared,
	})
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return nil, fmt.Errorf("%w in %s: %w", ErrLayout, p.pinDir, err)
	}
	if err != nil {
		return nil, err
	}
	for name, m := range coll.Maps {
		if shared[name] != nil {
			_ = m.Close() // a second descriptor
		}
	}
	for name := range p.own {
		p.own[name] = coll.Maps[name]
	}
	return coll, nil
}

// Pin pins the maps, unless they are pinned already.
func (p *pins) Pin() error {
	if p.pinned {
		return nil
	}
	pin := func(name string) error {
		path := filepath.Join(p.pinDir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was left of another %s: %w", path, err)
		}
		if err := p.own[name].Pin(path); err != nil {
			return fmt.Errorf("pin %s: %w", path, err)
		}
		return nil
	}
	for name := range p.own {
		if name == p.mark {
			continue
		}
		if err := pin(name); err != nil {
			return err
		}
	}
	if err := pin(p.mark); err != nil { // the mark is pinned last
		return err
	}
	p.pinned = true
	return nil
}

// attached takes over a pinned link, or makes and pins a new one. updates is true if a link of this kind can be
// updated.
func (p *pins) attached(name string, program *ebpf.Program, updates bool, attach func() (link.Link, error)) error {
	path := linkPath(p.pinDir, name)
	old, err := link.LoadPinnedLink(path, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if old != nil && updates {
		if old.Update(program) == nil {
			p.links[name] = old
			return nil
		}
		// The target of the old link has gone.
	}
	l, err := pinnedInstead(old, path, attach)
	if err != nil {
		return err
	}
	p.links[name] = l
	return nil
}

// attachedTCX does what attached does, for a device in the network namespace of the calling thread. It does nothing if
// this process has the link already. The error is ebpf.ErrNotSupported on a kernel without tcx (before 6.6).
func (p *pins) attachedTCX(name string, o link.TCXOptions) error {
	if p.links[name] != nil {
		return nil
	}
	err := p.attached(name, o.Program, true, func() (link.Link, error) { return link.AttachTCX(o) })
	if err != nil {
		return fmt.Errorf("attach to device %d: %w", o.Interface, err)
	}
	return nil
}

// Detach detaches a program. The target may have gone.
func (p *pins) Detach(name string) error {
	l := p.links[name]
	if l == nil {
		return nil
	}
	delete(p.links, name)
	err := l.Unpin()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.Close())
}

// Stale lists the pinned attachments that this process has not taken over, by name. The names begin with prefix.
func (p *pins) Stale(prefix string) []string {
	var out []string
	found, _ := filepath.Glob(linkPath(p.pinDir, prefix) + "*") // the pattern is valid
	for _, path := range found {
		name := filepath.Base(path)[len("link_"):]
		if p.links[name] == nil {
			out = append(out, name)
		}
	}
	return out
}

// Unpin removes the pin of an attachment that no process holds.
func (p *pins) Unpin(name string) error { return os.Remove(linkPath(p.pinDir, name)) }

// removePins detaches everything and removes the pins.
func (p *pins) removePins() error {
	var errs []error
	for name := range maps.Clone(p.links) {
		errs = append(errs, p.Detach(name))
	}
	for name := range p.own {
		if err := os.Remove(filepath.Join(p.pinDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// closeLinks closes the links of the attachments. The attachments stay, because their pins keep them.
func (p *pins) closeLinks() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = map[string]link.Link{}
	return errors.Join(errs...)
}
