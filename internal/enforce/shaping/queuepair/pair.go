// Package queuepair has a pair of devices that is a queue: packets that are led to one of them appear at the other, one
// class after the other, as HTB lets them. It makes and finds the pair, and sets the classes of nodes and those below
// them. It leads no packet there, and knows no limit.
package queuepair

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/netnamespace"
)

// The names of the two devices are netnice0q and netnice0r, or have the next free number. Their alias tells that they
// belong to netnice, and to which instance: see netdevice.AliasOf.
const (
	queueName  = "netnice%dq"
	returnName = "netnice%dr"
	mostPairs  = 64
)

// These are the properties of all devices that netnice makes.
const (
	MTU      = 65535
	QueueLen = 1000 // in packets: for packets that belong to no class
)

// Pair holds the two devices: HTB is on one, and packets that leave it appear at the other.
type Pair struct {
	NL    *netlink.Handle // of the network namespace
	Alias string          // of the devices
	Queue netlink.Link    // has HTB; nil = there is no pair yet
	Back  netlink.Link
}

// Find takes over the pair that an earlier process made. It returns false if the pair has gone.
func (p *Pair) Find(queueIfindex, returnIfindex uint32) (bool, error) {
	if queueIfindex == 0 { // no earlier process made a pair
		return false, nil
	}
	for _, of := range []struct {
		index uint32
		link  *netlink.Link
	}{{queueIfindex, &p.Queue}, {returnIfindex, &p.Back}} {
		link, err := p.Ours(p.NL, of.index)
		if err != nil || link == nil {
			return false, err
		}
		*of.link = link
	}
	return true, nil
}

// Used reports whether a packet ever passed the queue of a pair that Find took over. It returns true if that is not
// known. Only packets that netnice leads there pass, because the device has no addresses.
func (p *Pair) Used() bool {
	counted := p.Queue.Attrs().Statistics
	return counted == nil || counted.TxPackets > 0
}

// Make makes the pair with its queueing discipline. The devices have no addresses.
func (p *Pair) Make() error {
	if err := p.add(); err != nil {
		return err
	}
	err := p.configure()
	if err != nil {
		err = errors.Join(err, p.Remove())
	}
	return err
}

func (p *Pair) add() error {
	for n := range mostPairs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf(queueName, n), MTU, QueueLen
		back := fmt.Sprintf(returnName, n)
		err := p.NL.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: back, PeerMTU: MTU, PeerTxQLen: QueueLen})
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("%w: no veth devices (modprobe veth)", enforce.ErrNotSupported)
		}
		if err != nil {
			return fmt.Errorf("make a pair of devices: %w", err)
		}
		if p.Queue, err = p.NL.LinkByName(attrs.Name); err != nil {
			return fmt.Errorf("find %s: %w", attrs.Name, err)
		}
		if p.Back, err = p.NL.LinkByName(back); err != nil {
			return errors.Join(fmt.Errorf("find %s: %w", back, err), p.NL.LinkDel(p.Queue))
		}
		return nil
	}
	return fmt.Errorf("%d pairs of netnice's are here already; remove what nobody uses: ip link del netnice0q", mostPairs)
}

func (p *Pair) configure() error {
	for _, link := range []netlink.Link{p.Queue, p.Back} {
		if err := Plain(p.NL, link, p.Alias); err != nil {
			return err
		}
	}
	root := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: p.Queue.Attrs().Index, Handle: bpf.ShapeHandle, Parent: netlink.HANDLE_ROOT,
	})
	err := p.NL.QdiscReplace(root)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: no HTB (modprobe sch_htb)", enforce.ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("add htb to %s: %w", p.Queue.Attrs().Name, err)
	}
	// The queue device comes last. With its other end up, the kernel uses it at once. Otherwise a worker of the kernel
	// puts it into use later, and until then the device drops packets.
	for _, link := range []netlink.Link{p.Back, p.Queue} {
		if err := p.NL.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
		}
	}
	inOrder(p.Back, p.Alias, true)
	return nil
}

// Remove removes both devices. A pair that has gone already is no error.
func (p *Pair) Remove() error {
	if p.Queue == nil {
		return nil
	}
	if p.Back != nil {
		inOrder(p.Back, p.Alias, false)
	}
	err := p.NL.LinkDel(p.Queue)
	if errors.Is(err, unix.ENODEV) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", p.Queue.Attrs().Name, err)
	}
	p.Queue, p.Back = nil, nil
	return nil
}

// RemoveByAlias removes the devices of the netnice instance that has this alias, in the current namespace.
func RemoveByAlias(alias string) error {
	links, err := netdevice.List(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	var errs []error
	for _, link := range links {
		if !netdevice.IsAliasOf(link.Attrs().Alias, alias) {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) { // the other end goes with it
			errs = append(errs, fmt.Errorf("remove %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// RemoveEverywhere removes the devices with this alias in every network namespace.
func RemoveEverywhere(alias string) error {
	var errs []error
	for _, path := range netnamespace.Paths(nil) {
		errs = append(errs, netnamespace.Within(path, func() error { return RemoveByAlias(alias) }))
	}
	return errors.Join(errs...)
}
