package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed/relay"
)

// Device is the name of the device at both ends of a Pair: veth, or TUN if
// there is a relay between them.
const Device = "nn0"

// Pair is the topology of most tests:
//
//	namespace A                         namespace B
//	nn0 10.98.0.1/24  ---- veth ----  nn0 10.98.0.2/24
//	    fd00:98::1/64                     fd00:98::2/64
//
// with an MTU of 1500 and no queueing discipline. Usually A sends and B receives. The addresses exist only inside
// the namespaces, so they conflict with no others.
type Pair struct {
	A, B   *NetNS
	A4, B4 netip.Addr
	A6, B6 netip.Addr
	// Relay is the relay of a pair that NewDistantPair made.
	Relay *relay.Relay
}

// NewPair makes both namespaces and the veth pair that joins them. Close removes all.
func NewPair() (*Pair, error) {
	return newPair((*Pair).join)
}

// NewPairInOrder is NewPair whose devices deliver a flow's packets on one CPU, in their order, as a wire does.
// Without this setting a veth device delivers packets on the CPU that sent them. A flow of 1 GB/s whose program and
// timers run on two CPUs is then reordered, and TCP takes that for loss. The setting needs Linux 6.3. On older kernels
// NewPairInOrder equals NewPair.
func NewPairInOrder() (*Pair, error) {
	return newPair(func(p *Pair) error {
		return errors.Join(p.A.deliverInOrder(), p.B.deliverInOrder(), p.join())
	})
}

func newPair(join func(*Pair) error) (*Pair, error) {
	p := &Pair{
		A4: netip.MustParseAddr("10.98.0.1"), B4: netip.MustParseAddr("10.98.0.2"),
		A6: netip.MustParseAddr("fd00:98::1"), B6: netip.MustParseAddr("fd00:98::2"),
	}
	if err := p.setUp(join); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Pair) setUp(join func(*Pair) error) error {
	var err error
	if p.A, err = NewNetNS(); err != nil {
		return err
	}
	if p.B, err = NewNetNS(); err != nil {
		return err
	}
	if err := join(p); err != nil {
		return err
	}
	for _, end := range []struct {
		ns     *NetNS
		v4, v6 netip.Addr
	}{{p.A, p.A4, p.A6}, {p.B, p.B4, p.B6}} {
		if err := address(end.ns, end.v4, 24); err != nil {
			return err
		}
		if err := address(end.ns, end.v6, 64); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

// deliverInOrder affects the devices that are made from now on.
func (n *NetNS) deliverInOrder() error {
	cpus := uint32(1)<<min(runtime.NumCPU(), 31) - 1
	err := n.Sysctl("net/core/rps_default_mask", strconv.FormatUint(uint64(cpus), 16))
	if errors.Is(err, os.ErrNotExist) { // before Linux 6.3
		return nil
	}
	return err
}

// join makes the devices of a veth pair.
func (p *Pair) join() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = Device, 1500, 1000
	err := p.A.link.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: Device, PeerMTU: 1500,
		PeerNamespace: netlink.NsFd(int(p.B.handle)),
	})
	if err != nil {
		return fmt.Errorf("add veth pair: %w", err)
	}
	return nil
}

// address gives Device an address that is usable at once and sets it up.
func address(n *NetNS, a netip.Addr, bits int) error {
	link, err := n.link.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("find %s: %w", Device, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen()),
	}}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := n.link.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	if err := n.link.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", Device, err)
	}
	return nil
}

// QuickAck makes B acknowledge every segment at once. Otherwise B waits for a second segment, 40 ms at most, which
// shows in the round trip of a slow connection.
func (p *Pair) QuickAck() error {
	link, err := p.B.link.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("find %s: %w", Device, err)
	}
	for _, a := range []netip.Addr{p.A4, p.A6} {
		err := p.B.link.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, QuickACK: 1,
			Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		})
		if err != nil && (a.Is4() || !errors.Is(err, unix.EOPNOTSUPP)) {
			return fmt.Errorf("add route to %s: %w", a, err)
		}
	}
	return nil
}

// Close removes the devices and both namespaces. Traffic processes inside must
// have ended; the namespaces outlive this call otherwise.
func (p *Pair) Close() error {
	var errs []error
	if p.Relay != nil {
		errs = append(errs, p.Relay.Close())
	}
	for _, n := range []*NetNS{p.A, p.B} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}
