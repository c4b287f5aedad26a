package adapt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/routed"
)

// A call is traffic on which a person waits: voice has small packets at equal intervals, and video has a burst for
// each picture. iperf3 sends bulk traffic at the same time from the same machine to the same host.

const (
	callPort  = 6100
	bulkOffer = "50M" // bits/s, five times the bottleneck
)

// flow is the shape of a call.
type flow struct {
	every   time.Duration
	packets int // at a time
	bytes   int // payload of each
}

func flowOf(kind string) flow {
	if kind == "video" {
		return flow{40 * time.Millisecond, 16, 1250} // 4 Mbit/s
	}
	return flow{20 * time.Millisecond, 1, 160}
}

// call records the packets of a flow that arrived, and their delays.
type call struct {
	mu     sync.Mutex
	sent   int
	delays []time.Duration // delays of arrived packets
	failed error
}

// callFigures holds the figures of a call.
type callFigures struct {
	Name string  `json:"name"`
	Sent int     `json:"sent"`
	Lost float64 `json:"lost"`      // lost part
	P50  float64 `json:"p50_ms"`    // one-way delay
	P95  float64 `json:"p95_ms"`    //
	P99  float64 `json:"p99_ms"`    //
	Bulk float64 `json:"bulk_part"` // everything except the call, as a part of the bottleneck
}

func (f callFigures) String() string {
	return fmt.Sprintf("%-34s %6d sent, %.4f lost, one way %6.1f, %6.1f, %6.1f ms (p50, p95, p99), bulk %.3f", f.Name, f.Sent, f.Lost, f.P50, f.P95, f.P99, f.Bulk)
}

// converse sends a flow for a while, and waits for the packets on the way at the end.
func converse(ctx context.Context, s *routed.Site, f flow, over time.Duration) (*call, error) {
	at := netip.AddrPortFrom(s.Sink4, callPort)
	var in, out *net.UDPConn
	err := s.Sink.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer in.Close()
	err = s.Source.Do(func() (err error) {
		out, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c := &call{}
	var group sync.WaitGroup
	group.Go(func() { c.listen(in) })
	err = c.speak(ctx, out, f, over)
	wait := testbed.Sleep(ctx, time.Second)
	in.Close()
	group.Wait()
	return c, errors.Join(err, wait, c.failed)
}

func (c *call) speak(ctx context.Context, out *net.UDPConn, f flow, over time.Duration) error {
	buf := make([]byte, f.bytes)
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for end := time.Now().Add(over); time.Now().Before(end); {
		for range f.packets {
			binary.NativeEndian.PutUint64(buf, uint64(time.Now().UnixNano()))
			if _, err := out.Write(buf); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("send a call: %w", err)
			}
			c.mu.Lock()
			c.sent++
			c.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *call) listen(in *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, err := in.Read(buf)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				c.failed = err
			}
			return
		}
		if n >= 8 {
			c.mu.Lock()
			c.delays = append(c.delays, time.Duration(time.Now().UnixNano()-int64(binary.NativeEndian.Uint64(buf))))
			c.mu.Unlock()
		}
	}
}

// calls measures voice and video that compete with bulk traffic, without and with adapt.
func calls(ctx context.Context, b *bed.Bed, wanted func(string) bool) (all []callFigures, err error) {
	for _, kind := range []string{"voice", "video"} {
		for _, adapt := range []bool{false, true} {
			name := "unpaced 10mbit " + kind + " beside bulk"
			if adapt {
				name = "adapt 10mbit " + kind + " beside bulk"
			}
			if !wanted(name) {
				continue
			}
			f, err := callBeside(ctx, b, kind, adapt)
			if err != nil {
				return all, fmt.Errorf("%s: %w", name, err)
			}
			f.Name = name
			b.Printf("%s\n", f)
			all = append(all, f)
		}
	}
	return all, nil
}

func callBeside(ctx context.Context, b *bed.Bed, kind string, adapt bool) (f callFigures, err error) {
	const rate = 1.25e6
	s, err := routed.Open(2)
	if err != nil {
		return f, err
	}
	b.Defer(s.Close)
	if err := s.Shape(rate, 1600, 60e3); err != nil {
		return f, err
	}
	if err := b.IPerfServer(ctx, s.Sink); err != nil {
		return f, err
	}
	over := b.Length(15*time.Second, 5*time.Second)
	settle := 8 * time.Second
	bulk, err := b.Start(s.Source, "iperf3", "--client", s.Sink4.String(), "--udp", "--bitrate", bulkOffer, "--length", "1400",
		"--time", fmt.Sprint(int((settle+over).Seconds())+5))
	if err != nil {
		return f, err
	}
	if adapt {
		if _, err := b.NetniceIn(ctx, s.Source, "adapt", s.Sink4.String()); err != nil {
			return f, err
		}
		defer func() {
			_, off := b.NetniceIn(context.WithoutCancel(ctx), s.Source, "adapt", s.Sink4.String(), "off")
			err = errors.Join(err, off)
		}()
	}
	if err := testbed.Sleep(ctx, settle); err != nil {
		return f, err
	}
	before, err := s.Carried()
	if err != nil {
		return f, err
	}
	c, err := converse(ctx, s, flowOf(kind), over)
	if err != nil {
		return f, err
	}
	after, err := s.Carried()
	if err != nil {
		return f, err
	}
	f.Sent, f.Lost = c.sent, 1-float64(len(c.delays))/max(float64(c.sent), 1)
	ms := func(p float64) float64 { return testbed.Percentile(c.delays, p).Seconds() * 1e3 }
	f.P50, f.P95, f.P99 = ms(50), ms(95), ms(99)
	its := float64(len(c.delays)) * float64(flowOf(kind).bytes+28)
	f.Bulk = (after - before - its) / (over + time.Second).Seconds() / rate
	return f, bed.Kill(bulk)
}
