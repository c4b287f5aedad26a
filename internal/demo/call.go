package demo

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// A video call sends small packets, 50 a second.
const (
	callInterval = 20 * time.Millisecond
	callBytes    = 160
	callPort     = 5060
)

// call sends packets to a far end that returns each, and records the round trips.
type call struct {
	near, far *net.UDPConn
	ended     chan struct{}
	wait      sync.WaitGroup

	mu    sync.Mutex
	trips []trip
}

type trip struct {
	sent testbed.Instant
	took time.Duration
}

// startCall begins a call between two namespaces.
func startCall(near, far *testbed.NetNS, to netip.Addr) (*call, error) {
	c := &call{ended: make(chan struct{})}
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, callPort))
	err := far.Do(func() (err error) {
		c.far, err = net.ListenUDP("udp", at)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = near.Do(func() (err error) {
		c.near, err = net.DialUDP("udp", nil, at)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, c.far.Close())
	}
	c.wait.Go(c.answer)
	c.wait.Go(c.hear)
	c.wait.Go(c.speak)
	return c, nil
}

func (c *call) close() error {
	close(c.ended)
	err := errors.Join(c.near.Close(), c.far.Close())
	c.wait.Wait()
	return err
}

func (c *call) speak() {
	t := time.NewTicker(callInterval)
	defer t.Stop()
	packet := make([]byte, callBytes)
	for {
		select {
		case <-c.ended:
			return
		case <-t.C:
		}
		binary.BigEndian.PutUint64(packet, uint64(testbed.Now()))
		_, _ = c.near.Write(packet) // a lost packet has no effect
	}
}

func (c *call) answer() {
	packet := make([]byte, 2*callBytes)
	for {
		n, from, err := c.far.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.far.WriteToUDPAddrPort(packet[:n], from)
		}
	}
}

func (c *call) hear() {
	packet := make([]byte, 2*callBytes)
	for {
		n, err := c.near.Read(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 8 {
			continue
		}
		sent := testbed.Instant(binary.BigEndian.Uint64(packet))
		c.mu.Lock()
		c.trips = append(c.trips, trip{sent, testbed.Now().Sub(sent)})
		c.mu.Unlock()
	}
}

// median returns the median round trip of packets that were sent between two times; 0 = none of them has come back.
func (c *call) median(from, to testbed.Instant) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var took []time.Duration
	for _, t := range c.trips {
		if t.sent >= from && t.sent < to {
			took = append(took, t.took)
		}
	}
	return testbed.Percentile(took, 50)
}
