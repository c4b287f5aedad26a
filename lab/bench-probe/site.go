package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testutil"
)

// site is
//
//	source  10.94.1.2 ---\
//	                      router --- token bucket --- sink  10.94.3.2
//	others  10.94.2.2 ---/
//
// and the same with fd00:94:1::2 and so on. The devices have an MTU of 1500.
type site struct {
	source, others, router, sink *testutil.NetNS
	sink4, sink6                 netip.Addr
}

func openSite() (s *site, err error) {
	s = &site{sink4: netip.MustParseAddr("10.94.3.2"), sink6: netip.MustParseAddr("fd00:94:3::2")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, n := range []**testutil.NetNS{&s.source, &s.others, &s.router, &s.sink} {
		if *n, err = testutil.NewNetNS(); err != nil {
			return s, err
		}
	}
	for _, f := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := s.router.Sysctl(f, "1"); err != nil {
			return s, err
		}
	}
	for i, n := range []*testutil.NetNS{s.source, s.others, s.sink} {
		if err := s.join(i+1, n); err != nil {
			return s, err
		}
	}
	return s, nil
}

// join makes the veth pair number i from the router, where it is called toI, to a namespace.
func (s *site) join(i int, n *testutil.NetNS) error {
	file, err := openFile(n)
	if err != nil {
		return err
	}
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf("to%d", i), 1500, 1000
	err = s.router.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: testutil.Device, PeerMTU: 1500, PeerNamespace: netlink.NsFd(int(file.Fd())),
	})
	if err != nil {
		return fmt.Errorf("add veth pair: %w", err)
	}
	for _, end := range []struct {
		n      *testutil.NetNS
		device string
		host   int
	}{{s.router, attrs.Name, 1}, {n, testutil.Device, 2}} {
		h := end.n.Netlink()
		link, err := h.LinkByName(end.device)
		if err != nil {
			return err
		}
		// A packet is what a wire would carry.
		if err := h.LinkSetGSOMaxSegs(link, 1); err != nil {
			return fmt.Errorf("switch segmentation off: %w", err)
		}
		for _, a := range []string{fmt.Sprintf("10.94.%d.%d/24", i, end.host), fmt.Sprintf("fd00:94:%d::%d/64", i, end.host)} {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if strings.Contains(a, "::") {
				addr.Flags = 2 // no detection of duplicates
			}
			if err := h.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return err
		}
	}
	for _, gw := range []string{fmt.Sprintf("10.94.%d.1", i), fmt.Sprintf("fd00:94:%d::1", i)} {
		if err := n.Netlink().RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)}); err != nil {
			return fmt.Errorf("add route by %s: %w", gw, err)
		}
	}
	return nil
}

// shape puts the token bucket in place: rate in IP bytes/s of packets of 1500 bytes.
func (s *site) shape(rate float64, burst int) error {
	h := s.router.Netlink()
	link, err := h.LinkByName("to3")
	if err != nil {
		return err
	}
	bytesPerSec := uint64(rate * 1514 / 1500)
	// Room for the bucket and 0.1 s, but for ten packets at least.
	limit := burst + max(int(rate/10), 15140)
	err = h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytesPerSec, Limit: uint32(limit), Buffer: ticks(bytesPerSec, burst),
	})
	if err != nil {
		return fmt.Errorf("add tbf: %w", err)
	}
	return nil
}

// ticks of 64 ns that so many bytes take; in whole microseconds, as usual, 1600 bytes at 1 Gbit/s
// would come out as less than a packet.
func ticks(bytesPerSec uint64, bytes int) uint32 {
	return uint32(float64(bytes) / float64(bytesPerSec) * 1e9 / 64)
}

// crossed is how many IP bytes have come from the others.
func (s *site) crossed() (float64, error) {
	link, err := s.router.Netlink().LinkByName("to2")
	if err != nil {
		return 0, err
	}
	c := link.Attrs().Statistics
	return float64(c.RxBytes) - 14*float64(c.RxPackets), nil
}

// Close removes everything.
func (s *site) Close() error {
	var errs []error
	for _, n := range []*testutil.NetNS{s.source, s.others, s.router, s.sink} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// within says whether a context still runs.
func within(ctx context.Context) bool { return ctx.Err() == nil }
