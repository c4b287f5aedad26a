package shaping

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/pacing"
)

// place is a network namespace in which something limited lives: its devices are
// looked at. One in which nothing limited lives is let go of soon: what is held of
// it, a file and sockets, keeps it alive after its last process.
type place struct {
	s        *shaper
	ns       uint32   // inode number
	file     *os.File // nil: home, where the pair is
	nl       *netlink.Handle
	link     bpf.Place // as the kernel side knows it
	linked   bool      // packets are led on from both ends of the link
	devices  map[int]bpf.Device
	attached map[int]bool
	entered  bool     // devices were followed before
	watch    *watcher // at home the shaper has it
	seen     time.Time
	begun    bool  // else an earlier process's, to be taken over
	broken   error // why nothing is limited here
	tried    time.Time
}

func (p *place) isHome() bool { return p.file == nil }

// within runs f on a thread in the place's namespace.
func (p *place) within(f func() error) error {
	if p.isHome() {
		return f()
	}
	return pacing.InNamespace(fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()), f)
}

// newPlace opens a namespace; nil without an error if it has gone.
func (s *shaper) newPlace(ns uint32, path string) (*place, error) {
	p := &place{s: s, ns: ns, devices: map[int]bpf.Device{}, attached: map[int]bool{}, seen: time.Now()}
	p.link.NetnsId = homeID
	if ns == s.home {
		p.nl = s.pair.nl
		return p, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // its last process has ended
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("look at network namespace %d: %w", ns, err), file.Close())
	}
	if uint32(st.Ino) != ns {
		return nil, file.Close() // the process has gone on to another
	}
	p.file = file
	if p.nl, err = netlink.NewHandleAt(netns.NsHandle(file.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in network namespace %d: %w", ns, err), file.Close())
	}
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
	links, err := p.nl.LinkList()
	errs = append(errs, err)
	there := map[int]bool{}
	for _, l := range links {
		there[l.Attrs().Index] = true
	}
	for index := range p.devices {
		errs = append(errs, p.leave(index, there[index]))
	}
	errs = append(errs, p.removeLink(), p.close())
	delete(p.s.places, p.ns)
	return errors.Join(errs...)
}
