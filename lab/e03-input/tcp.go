package e03

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// conn holds the sender's view of a TCP connection.
type conn struct {
	Acknowledged uint64 // payload bytes
	RTT          time.Duration
	Retransmits  uint32
}

// bulk returns the connection of a namespace that has sent most.
func bulk(n *testbed.NetNS) (most conn, err error) {
	err = n.Do(func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // iperf3's sockets have the latter
			all, err := netlink.SocketDiagTCPInfo(family)
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				return fmt.Errorf("ask for TCP connections: %w", err)
			}
			for _, c := range all {
				if i := c.TCPInfo; i != nil && i.Bytes_acked > most.Acknowledged {
					most = conn{i.Bytes_acked, time.Duration(i.Rtt) * time.Microsecond, i.Total_retrans}
				}
			}
		}
		return nil
	})
	if err == nil && most.Acknowledged == 0 {
		err = errors.New("no connection has sent anything")
	}
	return most, err
}

// watched holds the figures of a connection over some time.
type watched struct {
	last    conn
	inOrder float64   // payload bytes/s
	trips   []float64 // ms, every 20 ms
}

// watch measures the connection from one instant to another.
func watch(ctx context.Context, n *testbed.NetNS, from, to testbed.Instant) (w watched, err error) {
	if err := testbed.Sleep(ctx, from.Sub(testbed.Now())); err != nil {
		return w, err
	}
	begin := testbed.Now()
	first, err := bulk(n)
	for now := begin; err == nil && now < to; now = testbed.Now() {
		if w.last, err = bulk(n); err != nil {
			break
		}
		w.trips = append(w.trips, w.last.RTT.Seconds()*1e3)
		err = testbed.Sleep(ctx, 20*time.Millisecond)
	}
	if err != nil {
		return w, err
	}
	end := testbed.Now()
	if w.last, err = bulk(n); err != nil {
		return w, err
	}
	w.inOrder = float64(w.last.Acknowledged-first.Acknowledged) / end.Sub(begin).Seconds()
	return w, nil
}
