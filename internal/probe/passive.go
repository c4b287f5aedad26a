package probe

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/netnamespace"
)

// Passive holds figures of the path from TCP connections to a host that run anyway.
type Passive struct {
	Connections int
	// DeliveryBytesPerSec is the sum of the rates of payload that connections lately got acknowledged while
	// the network, not the program, limited them.
	DeliveryBytesPerSec float64
	// AppLimited connections had no more to send, and say nothing about the path; they are not in the sum.
	AppLimited int
	LeastRTT   time.Duration
}

// recent is the longest time since the last packet of a connection that counts.
const recent = 2 * time.Second

// Connections asks the kernel about the TCP connections of a network namespace ("" for the
// caller's) to a host that have sent lately. Where there are some, it samples for half a second and takes the median,
// because the kernel's figure covers only the last few segments.
func Connections(ctx context.Context, namespace string, to netip.Addr) (Passive, error) {
	const looks, gap = 9, 60 * time.Millisecond
	var last Passive
	var rates []float64
	for range looks {
		p, err := connections(namespace, to)
		if err != nil {
			return Passive{}, err
		}
		if p.Connections == 0 {
			break
		}
		last = p
		rates = append(rates, p.DeliveryBytesPerSec)
		if err := waitUntil(ctx, time.Now().Add(gap)); err != nil {
			return Passive{}, err
		}
	}
	last.DeliveryBytesPerSec = median(rates)
	return last, nil
}

func connections(namespace string, to netip.Addr) (Passive, error) {
	var found []*netlink.InetDiagTCPInfoResp
	ask := func() error {
		family := uint8(unix.AF_INET)
		if to.Is6() {
			family = unix.AF_INET6
		}
		var err error
		if found, err = netlink.SocketDiagTCPInfo(family); err != nil {
			return fmt.Errorf("ask for TCP connections: %w", err)
		}
		return nil
	}
	var err error
	if namespace == "" {
		err = ask()
	} else {
		err = netnamespace.Within(namespace, ask)
	}
	if err != nil {
		return Passive{}, err
	}
	return passive(found, to), nil
}

func passive(found []*netlink.InetDiagTCPInfoResp, to netip.Addr) (p Passive) {
	for _, c := range found {
		if c.InetDiagMsg == nil || c.TCPInfo == nil {
			continue
		}
		peer, ok := netip.AddrFromSlice(c.InetDiagMsg.ID.Destination)
		last := time.Duration(c.TCPInfo.Last_data_sent) * time.Millisecond
		if !ok || peer.Unmap() != to.Unmap().WithZone("") || c.TCPInfo.Data_segs_out == 0 || last > recent {
			continue
		}
		p.Connections++
		if rtt := time.Duration(c.TCPInfo.Min_rtt) * time.Microsecond; rtt > 0 && (p.LeastRTT == 0 || rtt < p.LeastRTT) {
			p.LeastRTT = rtt
		}
		if c.TCPInfo.Delivery_rate_app_limited&1 != 0 {
			p.AppLimited++
			continue
		}
		p.DeliveryBytesPerSec += float64(c.TCPInfo.Delivery_rate)
	}
	return p
}
