// Package routed makes paths with a bottleneck: a router with a token bucket between two sources and
// a sink. It owns the topology and sends nothing.
package routed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// Site is this topology:
//
//	source  10.96.N.2  ---\
//	                       router --- token bucket --- sink  10.98.N.2, and .3
//	others  10.97.N.2  ---/
//
// The same exists with fd00:96:N::2 and so on. N distinguishes sites: a limit on a destination covers all senders to
// it. The devices have an MTU of 1500.
type Site struct {
	Source, Others, Router, Sink *testbed.NetNS
	Sink4, Sink6                 netip.Addr
	Other4                       netip.Addr // another address of the sink
	number                       int
}

// Open makes the site of a number, 1 to 255, without a bottleneck. Close removes it.
func Open(number int) (s *Site, err error) {
	at := func(format string) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, number)) }
	s = &Site{Sink4: at("10.98.%d.2"), Other4: at("10.98.%d.3"), Sink6: at("fd00:98:%x::2"), number: number}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, n := range []**testbed.NetNS{&s.Source, &s.Others, &s.Router, &s.Sink} {
		if *n, err = testbed.NewNetNS(); err != nil {
			return s, err
		}
	}
	for _, f := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := s.Router.Sysctl(f, "1"); err != nil {
			return s, err
		}
	}
	for i, n := range []*testbed.NetNS{s.Source, s.Others, s.Sink} {
		if err := s.join(i+1, n); err != nil {
			return s, err
		}
	}
	return s, nil
}

// join makes the veth pair number i from the router, where its name is toI, to a namespace.
func (s *Site) join(i int, n *testbed.NetNS) error {
	file, err := os.Open(n.Path())
	if err != nil {
		return err
	}
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf("to%d", i), 1500, 1000
	err = s.Router.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: testbed.Device, PeerMTU: 1500, PeerNamespace: netlink.NsFd(int(file.Fd())),
	})
	if err != nil {
		return fmt.Errorf("add veth pair: %w", err)
	}
	for _, end := range []struct {
		n      *testbed.NetNS
		device string
		host   int
	}{{s.Router, attrs.Name, 1}, {n, testbed.Device, 2}} {
		h := end.n.Netlink()
		link, err := h.LinkByName(end.device)
		if err != nil {
			return err
		}
		// Single segments leave, like on a wire.
		if err := h.LinkSetGSOMaxSegs(link, 1); err != nil {
			return fmt.Errorf("switch segmentation off: %w", err)
		}
		addresses := []string{fmt.Sprintf("10.%d.%d.%d/24", 95+i, s.number, end.host), fmt.Sprintf("fd00:%d:%x::%d/64", 95+i, s.number, end.host)}
		if end.n == s.Sink {
			addresses = append(addresses, s.Other4.String()+"/24")
		}
		for _, a := range addresses {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if strings.Contains(a, "::") {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := h.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return err
		}
	}
	if n == s.Sink {
		if err := s.know(n.Netlink()); err != nil {
			return err
		}
	}
	for _, gw := range []string{fmt.Sprintf("10.%d.%d.1", 95+i, s.number), fmt.Sprintf("fd00:%d:%x::1", 95+i, s.number)} {
		if err := n.Netlink().RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)}); err != nil {
			return fmt.Errorf("add route by %s: %w", gw, err)
		}
	}
	return nil
}

// know makes the router know the sink's link address for good. Else it asks for it through the bottleneck, where the
// question may wait for longer than it waits for the answer.
func (s *Site) know(sink *netlink.Handle) error {
	at, err := sink.LinkByName(testbed.Device)
	if err != nil {
		return err
	}
	h, link, err := s.out()
	if err != nil {
		return err
	}
	for _, ip := range []netip.Addr{s.Sink4, s.Other4, s.Sink6} {
		err := h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip.AsSlice(), HardwareAddr: at.Attrs().HardwareAddr})
		if err != nil {
			return fmt.Errorf("set the neighbour %v: %w", ip, err)
		}
	}
	return nil
}

// Shape puts a token bucket in place, or changes it. rate is in IP bytes/s of packets of 1500 bytes; burst and the
// queue before it are in bytes.
func (s *Site) Shape(rate float64, burst, queue int) error {
	h, link, err := s.out()
	if err != nil {
		return err
	}
	bytesPerSec := uint64(rate * 1514 / 1500)
	err = h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytesPerSec, Limit: uint32(queue), Buffer: ticks(bytesPerSec, burst),
	})
	if err != nil {
		return fmt.Errorf("add tbf: %w", err)
	}
	return nil
}

func (s *Site) out() (*netlink.Handle, netlink.Link, error) {
	link, err := s.Router.Netlink().LinkByName("to3")
	return s.Router.Netlink(), link, err
}

// Dropped returns the number of packets that the bottleneck has dropped so far, of all senders.
func (s *Site) Dropped() (uint64, error) {
	h, link, err := s.out()
	if err != nil {
		return 0, err
	}
	list, err := h.QdiscList(link)
	if err != nil {
		return 0, fmt.Errorf("look at the bottleneck: %w", err)
	}
	for _, q := range list {
		if stats := q.Attrs().Statistics; q.Type() == "tbf" && stats != nil && stats.Queue != nil {
			return uint64(stats.Queue.Drops), nil
		}
	}
	return 0, errors.New("there is no bottleneck")
}

// Carried returns the IP bytes that have left the bottleneck.
func (s *Site) Carried() (float64, error) {
	_, link, err := s.out()
	if err != nil {
		return 0, err
	}
	c := link.Attrs().Statistics
	return float64(c.TxBytes) - 14*float64(c.TxPackets), nil
}

// ticks returns the time of that many bytes, in units of 64 ns. In whole microseconds, the usual unit, 1600 bytes at
// 1 Gbit/s would result in less than a packet.
func ticks(bytesPerSec uint64, bytes int) uint32 {
	return uint32(float64(bytes) / float64(bytesPerSec) * 1e9 / 64)
}

// FromOthers returns the IP bytes that have come from the others.
func (s *Site) FromOthers() (float64, error) {
	link, err := s.Router.Netlink().LinkByName("to2")
	if err != nil {
		return 0, err
	}
	c := link.Attrs().Statistics
	return float64(c.RxBytes) - 14*float64(c.RxPackets), nil
}

// Close removes everything.
func (s *Site) Close() error {
	var errs []error
	for _, n := range []*testbed.NetNS{s.Source, s.Others, s.Router, s.Sink} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}
