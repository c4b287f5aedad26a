// Package capture records every IP packet that arrives on a device, or leaves by it, as tcpdump on
// another machine would. It keeps time, ports and length of a packet, and no contents.
package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// Packet is a captured packet.
type Packet struct {
	T        testbed.Instant
	From, To uint16 // ports
	Bytes    int    // length of the IP packet, its headers included
}

// Capture runs until Stop.
type Capture struct {
	fd          int
	sent        bool // egress instead of ingress
	stop, ended chan struct{}
	packets     []Packet // valid once ended is closed, as is err
	err         error
}

// buffer is the size of the socket's buffer, in bytes: 0.3 s of 1 Gbit/s.
const buffer = 128 << 20

// Start records the packets that arrive on the Device of the namespace (IPv4, TCP or UDP). A chunk that a device
// delivers whole counts as one packet, so Segment the sender's device first.
func Start(n *testbed.NetNS) (*Capture, error) { return start(n, false) }

// StartSent is Start for the egress of the Device, behind its queue: the packets that a wire carries, whatever the
// receiver's end does with them.
func StartSent(n *testbed.NetNS) (*Capture, error) { return start(n, true) }

func start(n *testbed.NetNS, sent bool) (*Capture, error) {
	c := &Capture{sent: sent, stop: make(chan struct{}), ended: make(chan struct{})}
	err := n.Do(func() error {
		device, err := net.InterfaceByName(testbed.Device)
		if err != nil {
			return err
		}
		protocol := uint16(unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8) // in network order
		if sent {
			protocol = unix.ETH_P_ALL << 8 // only such sockets see egress
		}
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer),
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}),
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: device.Index}))
	})
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %w", testbed.Device, err)
	}
	go c.run()
	return c, nil
}

// Segment makes the device of the namespace send packets no larger than its MTU, so the other end sees the packets
// that a wire would carry.
func Segment(n *testbed.NetNS) error {
	link, err := n.Netlink().LinkByName(testbed.Device)
	if err != nil {
		return fmt.Errorf("find %s: %w", testbed.Device, err)
	}
	if err := n.Netlink().LinkSetGSOMaxSegs(link, 1); err != nil {
		return fmt.Errorf("switch segmentation offload of %s off: %w", testbed.Device, err)
	}
	return nil
}

func (c *Capture) run() {
	defer close(c.ended)
	buf, oob := make([]byte, 64), make([]byte, 64)
	var clock time.Duration // offset from real to monotonic time
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		n, oobn, _, from, err := unix.Recvmsg(c.fd, buf, oob, 0)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			c.err = err
			return
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && (ll.Pkttype == unix.PACKET_OUTGOING) != c.sent {
			continue
		}
		if clock == 0 {
			clock = time.Duration(time.Now().UnixNano() - int64(testbed.Now()))
		}
		if p, ok := parse(buf[:n]); ok {
			p.T = arrived(oob[:oobn], clock)
			c.packets = append(c.packets, p)
		}
	}
}

// parse reads an IPv4 header and the ports behind it.
func parse(b []byte) (Packet, bool) {
	const shortest = 20 + 4
	if len(b) < shortest || b[0]>>4 != 4 || (b[9] != unix.IPPROTO_TCP && b[9] != unix.IPPROTO_UDP) {
		return Packet{}, false
	}
	header := int(b[0]&15) * 4
	if len(b) < header+4 {
		return Packet{}, false
	}
	return Packet{
		Bytes: int(binary.BigEndian.Uint16(b[2:])),
		From:  binary.BigEndian.Uint16(b[header:]), To: binary.BigEndian.Uint16(b[header+2:]),
	}, true
}

// arrived returns the kernel's time stamp, or the present without one.
func arrived(oob []byte, clock time.Duration) testbed.Instant {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
				sec, ns := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
				return testbed.Instant(int64(sec)*1e9 + int64(ns) - int64(clock))
			}
		}
	}
	return testbed.Now()
}

// Stop ends the capture and returns the packets. It returns an error if the kernel dropped any packet before it was
// recorded.
func (c *Capture) Stop() ([]Packet, error) {
	time.Sleep(60 * time.Millisecond) // the last ones
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	close(c.stop)
	<-c.ended
	if err == nil && stats.Drops > 0 {
		err = fmt.Errorf("%d of %d packets were not noted", stats.Drops, stats.Packets)
	}
	if err = errors.Join(c.err, err, unix.Close(c.fd)); err != nil {
		return c.packets, fmt.Errorf("capture: %w", err)
	}
	return c.packets, nil
}

// Rates returns the bytes per second in each interval of that length, between these instants, of the packets that
// keep accepts (nil = all).
func Rates(packets []Packet, from, to testbed.Instant, step time.Duration, keep func(Packet) bool) []float64 {
	rates := make([]float64, int(to.Sub(from)/step))
	for _, p := range packets {
		if p.T < from || (keep != nil && !keep(p)) {
			continue
		}
		if i := int(p.T.Sub(from) / step); i < len(rates) {
			rates[i] += float64(p.Bytes) / step.Seconds()
		}
	}
	return rates
}
