package shaping

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
	mtu        = 65535
	queueLen   = 1000 // in packets: for packets that belong to no class
)

// pair holds the two devices: HTB is on one, and packets that leave it appear at the other.
type pair struct {
	nl    *netlink.Handle
	queue netlink.Link
	back  netlink.Link
	alias string
}

// find takes over the pair that an earlier process made. It returns false if the pair has gone.
func (p *pair) find(queueIfindex, returnIfindex uint32) (bool, error) {
	if queueIfindex == 0 { // no earlier process made a pair
		return false, nil
	}
	for _, of := range []struct {
		index uint32
		link  *netlink.Link
	}{{queueIfindex, &p.queue}, {returnIfindex, &p.back}} {
		link, err := p.ours(p.nl, of.index)
		if err != nil || link == nil {
			return false, err
		}
		*of.link = link
	}
	return true, nil
}

// used reports whether a packet ever passed the queue of a pair that find took over. It returns true if that is not
// known. Only packets that netnice leads there pass, because the device has no addresses.
func (p *pair) used() bool {
	counted := p.queue.Attrs().Statistics
	return counted == nil || counted.TxPackets > 0
}

// make makes the pair with its queueing discipline. The devices have no addresses.
func (p *pair) make() error {
	if err := p.add(); err != nil {
		return err
	}
	err := p.configure()
	if err != nil {
		err = errors.Join(err, p.remove())
	}
	return err
}

func (p *pair) add() error {
	for n := range mostPairs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf(queueName, n), mtu, queueLen
		back := fmt.Sprintf(returnName, n)
		err := p.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: back, PeerMTU: mtu, PeerTxQLen: queueLen})
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("%w: no veth devices (modprobe veth)", enforce.ErrNotSupported)
		}
		if err != nil {
			return fmt.Errorf("make a pair of devices: %w", err)
		}
		if p.queue, err = p.nl.LinkByName(attrs.Name); err != nil {
			return fmt.Errorf("find %s: %w", attrs.Name, err)
		}
		if p.back, err = p.nl.LinkByName(back); err != nil {
			return errors.Join(fmt.Errorf("find %s: %w", back, err), p.nl.LinkDel(p.queue))
		}
		return nil
	}
	return fmt.Errorf("%d pairs of netnice's are here already; remove what nobody uses: ip link del netnice0q", mostPairs)
}

func (p *pair) configure() error {
	for _, link := range []netlink.Link{p.queue, p.back} {
		if err := plain(p.nl, link, p.alias); err != nil {
			return err
		}
	}
	root := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: p.queue.Attrs().Index, Handle: bpf.ShapeHandle, Parent: netlink.HANDLE_ROOT,
	})
	err := p.nl.QdiscReplace(root)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: no HTB (modprobe sch_htb)", enforce.ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("add htb to %s: %w", p.queue.Attrs().Name, err)
	}
	// The queue device comes last. With its other end up, the kernel uses it at once. Otherwise a worker of the kernel
	// puts it into use later, and until then the device drops packets.
	for _, link := range []netlink.Link{p.back, p.queue} {
		if err := p.nl.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
		}
	}
	inOrder(p.back, p.alias, true)
	return nil
}

// remove removes both devices. A pair that has gone already is no error.
func (p *pair) remove() error {
	if p.queue == nil {
		return nil
	}
	if p.back != nil {
		inOrder(p.back, p.alias, false)
	}
	err := p.nl.LinkDel(p.queue)
	if errors.Is(err, unix.ENODEV) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", p.queue.Attrs().Name, err)
	}
	p.queue, p.back = nil, nil
	return nil
}

// removeByAlias removes the devices of the netnice instance that has this alias, in the current namespace.
func removeByAlias(alias string) error {
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

// removeEverywhere removes the devices with this alias in every network namespace.
func removeEverywhere(alias string) error {
	var errs []error
	for _, path := range netnamespace.Paths(nil) {
		errs = append(errs, netnamespace.Within(path, func() error { return removeByAlias(alias) }))
	}
	return errors.Join(errs...)
}
