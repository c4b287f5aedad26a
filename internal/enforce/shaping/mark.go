package shaping

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/netnamespace"
)

// While a limit has a DSCP, the program that meters limited devices (bpf/meter.h) is on more devices. These are all
// devices of the daemon's namespace, and of each namespace where a marked process or socket lives. The program writes
// the DSCP into packets as they leave. Kernel.mu guards this state.

// marker holds the namespaces whose devices have the program.
type marker struct {
	home   uint32
	places map[uint32]*markPlace // by namespace
}

// markPlace is one of these namespaces.
type markPlace struct {
	netdevice.Namespace
	k       *Kernel
	watch   *netdevice.Watcher
	rest    netdevice.Rest     // visits the devices that a turn has left
	devices map[int]bpf.Device // DeviceClsact: the program is a filter on a qdisc that netnice made
}

func (m *marker) any() bool { return len(m.places) > 0 }

// has reports whether the program is on a device because of a mark.
func (m *marker) has(ns uint32, index int) bool {
	p := m.places[ns]
	if p == nil {
		return false
	}
	_, on := p.devices[index]
	return on
}

// lookAtMarks attaches the program in the namespaces where a mark now needs it, and detaches it elsewhere.
func (k *Kernel) lookAtMarks() error {
	specs, err := k.Nodes()
	if err != nil {
		return err
	}
	marked := false
	for _, s := range specs {
		marked = marked || s.DSCP != 0
	}
	if !marked {
		return k.marks.remove()
	}
	if k.marks.home == 0 {
		if k.marks.home, err = netnamespace.Of("thread-self"); err != nil {
			return err
		}
		k.marks.places = map[uint32]*markPlace{}
	}
	paths, err := k.markedNamespaces(specs)
	if err != nil {
		return err
	}
	var errs []error
	for ns, p := range k.marks.places {
		if _, wanted := paths[ns]; !wanted {
			errs = append(errs, p.remove())
		}
	}
	for ns, path := range paths {
		p := k.marks.places[ns]
		if p == nil {
			if p, err = k.newMarkPlace(ns, path); err != nil || p == nil {
				errs = append(errs, err)
				continue
			}
			k.marks.places[ns] = p
		}
		errs = append(errs, p.ensure())
	}
	return errors.Join(errs...)
}

// markedNamespaces returns the daemon's namespace and those of marked processes and marked sockets, with a path of
// each.
func (k *Kernel) markedNamespaces(specs []enforce.NodeSpec) (paths map[uint32]string, err error) {
	paths = map[uint32]string{k.marks.home: "/proc/thread-self/ns/net"}
	for _, s := range specs {
		if s.DSCP == 0 || s.Kind != enforce.KindTree {
			continue
		}
		members, err := k.pacing.Members(s.ID)
		if err != nil {
			return nil, err
		}
		for _, pid := range members {
			ns, err := netnamespace.Of(fmt.Sprint(pid))
			if err == nil && paths[ns] == "" { // with an error, the process has ended
				paths[ns] = fmt.Sprintf("/proc/%d/ns/net", pid)
			}
		}
	}
	sockets, err := k.base.ListSockets()
	if err != nil {
		return nil, fmt.Errorf("list marked sockets: %w", err)
	}
	for _, s := range sockets {
		if s.State.Dscp == 0 || paths[s.Netns] != "" {
			continue
		}
		if path := netnamespace.PathOf(s.Netns); path != "" {
			paths[s.Netns] = path
		}
	}
	return paths, nil
}

// newMarkPlace opens a namespace. It returns nil without an error if the namespace has gone, or its owner has too many.
func (k *Kernel) newMarkPlace(ns uint32, path string) (*markPlace, error) {
	p := &markPlace{k: k, devices: map[int]bpf.Device{}}
	if ns == k.marks.home {
		handle, err := netlink.NewHandle()
		if err != nil {
			return nil, fmt.Errorf("open netlink: %w", err)
		}
		p.Namespace = netdevice.Home(ns, handle)
		return p, nil
	}
	n, err := netdevice.Open(ns, path, func(owner uint32) (count int) {
		for _, o := range k.marks.places {
			if o.Owner == owner {
				count++
			}
		}
		return count
	})
	if errors.Is(err, netdevice.ErrTooMany) {
		return nil, nil //nolint:nilnil // the caller takes it for one that has gone
	}
	if n == nil {
		return nil, err
	}
	p.Namespace = *n
	return p, nil
}

// ensure attaches the program to the devices that are present, and watches for changes.
func (p *markPlace) ensure() error {
	if p.watch == nil {
		var err error
		if p.watch, err = p.Watch(func() { p.k.markDevicesChanged(p) }); err != nil {
			return err
		}
	}
	links, err := p.Links()
	if err != nil {
		return err
	}
	_, left, err := p.Follow(links, netdevice.Turn{Up: p.k.turnUp}, p.devices, p.enter, p.leave)
	if left {
		p.rest.Look(func() { p.k.markDevicesChanged(p) })
	}
	return err
}

func (k *Kernel) markDevicesChanged(p *markPlace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.marks.places[p.NS] != p {
		return
	}
	if err := p.ensure(); err != nil {
		k.log.Warn("what leaves by a device is not marked", "netns", p.NS, "err", err)
	}
}

func (p *markPlace) enter(l netlink.Link, flags uint32) error {
	index := l.Attrs().Index
	if _, on := p.devices[index]; on {
		return nil
	}
	d := bpf.Device{Flags: flags}
	err := p.Within(func() error { return p.k.base.MeterDevice(index, meterPin(p.NS, uint32(index))) })
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = p.attachFilter(index, &d)
	}
	if err != nil {
		return fmt.Errorf("mark what %s sends: %w", l.Attrs().Name, err)
	}
	p.devices[index] = d
	return nil
}

// leave takes the program off a device, unless the device has a limit that needs the program.
func (p *markPlace) leave(index int, there bool) error {
	d := p.devices[index]
	specs, err := p.k.Nodes()
	if err != nil {
		return err // the device may have a limit
	}
	delete(p.devices, index)
	var errs []error
	if there {
		errs = append(errs, p.detachFilter(index, d))
	}
	for _, s := range specs {
		if s.Kind == enforce.KindLink && s.Subject == enforce.LinkSubject(p.NS, uint32(index)) && there {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, p.k.base.Unmeter(meterPin(p.NS, uint32(index))))...)
}

// These constants name the filter for kernels before 6.6. The filter comes after the filters of queues. Its name tells
// whether netnice made the qdisc that holds the filter, because an earlier process may have made it.
const (
	markFilterName = "netnice-mark"
	markFilterOurs = markFilterName + "+"
)

func markFilter(name string) netdevice.Filter {
	return netdevice.Filter{Name: name, Parent: netlink.HANDLE_MIN_EGRESS, Later: true}
}

func (p *markPlace) attachFilter(index int, d *bpf.Device) error {
	ours, err := p.hasOurs(index)
	if err != nil {
		return err
	}
	made, err := netdevice.AddClsact(p.NL, index)
	if err != nil {
		return err
	}
	name := markFilterName
	if ours || made || p.k.receiving(p.NS).madeClsact(index) || p.k.sendingAt(p.NS).madeClsact(index) {
		name = markFilterOurs
		d.Flags |= bpf.DeviceClsact
	}
	return markFilter(name).Put(p.NL, index, p.k.base.NnMeter)
}

// hasOurs reports whether a device has a filter of an earlier process, on a qdisc that netnice made.
func (p *markPlace) hasOurs(index int) (bool, error) {
	list, err := netdevice.Filters(p.NL, &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return false, fmt.Errorf("list the filters of device %d: %w", index, err)
	}
	for _, f := range list {
		if b, is := f.(*netlink.BpfFilter); is && strings.HasPrefix(b.Name, markFilterOurs) {
			return true, nil
		}
	}
	return false, nil
}

// detachFilter takes off what attachFilter added. It also removes the qdisc, unless others use it meanwhile.
func (p *markPlace) detachFilter(index int, d bpf.Device) error {
	if d.Flags&bpf.DeviceClsact == 0 && p.k.base.Metered(meterPin(p.NS, uint32(index))) {
		return nil // the program is attached by a link, not by a filter
	}
	others, err := markFilter(markFilterName).Remove(p.NL, index)
	if err != nil || d.Flags&bpf.DeviceClsact == 0 {
		return err
	}
	if others > 0 { // the last user of the qdisc removes it
		return errors.Join(p.k.receiving(p.NS).inheritClsact(index), p.k.sendingAt(p.NS).inheritClsact(index))
	}
	return netdevice.RemoveClsact(p.NL, index)
}

// close closes the watch and the handles, and leaves everything in the kernel for a successor.
func (p *markPlace) close() error { return p.Shut(&p.watch) }

// remove takes the program off all devices of the namespace, and forgets the namespace.
func (p *markPlace) remove() error {
	there, err := p.Present()
	errs := []error{err}
	for index := range p.devices {
		errs = append(errs, p.leave(index, there(index)))
	}
	if len(p.devices) > 0 {
		return errors.Join(errs...) // the next look tries again
	}
	delete(p.k.marks.places, p.NS)
	return errors.Join(append(errs, p.close())...)
}

func (m *marker) close() error {
	var errs []error
	for ns, p := range m.places {
		errs = append(errs, p.close())
		delete(m.places, ns)
	}
	return errors.Join(errs...)
}

func (m *marker) remove() error {
	var errs []error
	for _, p := range m.places {
		errs = append(errs, p.remove())
	}
	return errors.Join(errs...)
}
