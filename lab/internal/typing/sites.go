package typing

import (
	"errors"
	"net/netip"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/lan"
)

const (
	deviceQueue  = 1000      // packets: Linux's default for a device
	switchBuffer = 42        // packets: 64 KB
	fast         = 10 * Slow // bytes/s
)

// Hub is a site whose stations are all on one segment:
//
//	files  [echo]  typist  downloader  downloader
//	--+------+-------+---------+-----------+--  10 Mbit/s
//
// A single server echoes, too.
func Hub(b *bed.Bed, servers int) (s Site, err error) {
	segment, err := lan.NewSegment(Slow)
	if err != nil {
		return s, err
	}
	b.Defer(segment.Close)
	if s, err = stations(b, servers, func(n *testbed.NetNS, at netip.Addr) error { return segment.Attach(n, at, deviceQueue) }); err != nil {
		return s, err
	}
	s.FilesAt, s.EchoAt = hubAddress(1), hubAddress(servers)
	for i := range servers {
		if err := segment.Attach([]*testbed.NetNS{s.Files, s.Echo}[i], hubAddress(1+i), deviceQueue); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Switched is a site whose two servers have 100 Mbit/s each to a switch:
//
//	files    echo        typist  downloader  downloader
//	  +-switch-+------------+---------+-----------+--  10 Mbit/s
func Switched(b *bed.Bed) (s Site, err error) {
	segment, err := lan.NewSegment(Slow)
	if err != nil {
		return s, err
	}
	b.Defer(segment.Close)
	own, servers := hubAddress(254), netip.MustParsePrefix("10.99.0.0/16")
	w, err := lan.NewSwitch(segment, own, switchBuffer, servers)
	if err != nil {
		return s, err
	}
	b.Defer(w.Close)
	s, err = stations(b, 2, func(n *testbed.NetNS, at netip.Addr) error {
		return errors.Join(segment.Attach(n, at, deviceQueue), lan.Via(n, own))
	})
	if err != nil {
		return s, err
	}
	s.FilesAt, s.EchoAt = netip.MustParseAddr("10.99.1.1"), netip.MustParseAddr("10.99.2.1")
	return s, errors.Join(w.Attach(s.Files, s.FilesAt, fast), w.Attach(s.Echo, s.EchoAt, fast))
}

// stations makes the namespaces, and attaches those that are not servers.
func stations(b *bed.Bed, servers int, attach func(*testbed.NetNS, netip.Addr) error) (s Site, err error) {
	all := make([]*testbed.NetNS, servers+3)
	for i := range all {
		if all[i], err = testbed.NewNetNS(); err != nil {
			return s, err
		}
		b.Defer(all[i].Close)
		if i >= servers {
			err = attach(all[i], hubAddress(10+i))
		}
		if err != nil {
			return s, err
		}
	}
	s.Files, s.Echo = all[0], all[servers-1]
	s.Typist, s.Downloaders = all[servers], all[servers+1:]
	return s, nil
}

func hubAddress(host int) netip.Addr { return netip.AddrFrom4([4]byte{10, 98, 0, byte(host)}) }
