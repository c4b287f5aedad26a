package overhead

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/datagram"
)

// limited is traffic that a limit really binds, both ways, while other traffic is measured. Programs of one cgroup
// in A send to B, and receive from there, by TCP and by UDP. They offer only a little more than the limit, so the
// machine has as much to do without it.
type limited struct {
	dir  string
	ways [2]flows // sent, received
	// Rates are in IP bytes.
	Rates [2]struct {
		TCP float64 `json:"tcp_bytes_per_sec"`
		UDP float64 `json:"udp_bytes_per_sec"`
	} `json:"sent_and_received"`
}

// flows holds the flows of one direction.
type flows struct {
	tcp *testbed.Receiver
	udp *datagram.Receiver
}

const (
	limitedRate = 1e6 // IP bytes/s, each way
	offeredEach = 0.6 // as a part of the limit, by TCP and by UDP each
	limitedTCP  = 6001
	limitedUDP  = 6002
	requests    = 10 * time.Millisecond // between them

	limitedPayload = 1400 // of a datagram
)

// startLimited starts the traffic. Each program begins in the cgroup, so its sockets belong there too. Without
// -any-cpu the programs have the CPU on which round trips and datagrams are not measured. On the measured CPU their
// packets would also interrupt the measurement. The interruption is a cost of the packets, not a cost for other
// programs.
func (o *bench) startLimited() (*limited, error) {
	l := new(limited)
	if !o.anyCPU {
		var all, second unix.CPUSet
		second.Set(1 % runtime.NumCPU())
		runtime.LockOSThread() // child processes inherit the CPU
		defer runtime.UnlockOSThread()
		if err := errors.Join(unix.SchedGetaffinity(0, &all), unix.SchedSetaffinity(0, &second)); err != nil {
			return nil, fmt.Errorf("keep limited programs on one CPU: %w", err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	}
	var err error
	if l.dir, err = o.Cgroup("both"); err != nil {
		return nil, err
	}
	for i, way := range []struct {
		from, into *testbed.NetNS
		to         netip.Addr
	}{{o.pair.A, o.pair.B, o.pair.B4}, {o.pair.B, o.pair.A, o.pair.A4}} {
		if l.ways[i], err = o.flow(l.dir, way.from, way.into, way.to); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// flow starts one direction of the traffic; its programs in A are in the cgroup.
func (o *bench) flow(dir string, from, into *testbed.NetNS, to netip.Addr) (f flows, err error) {
	inside := func(n *testbed.NetNS, start func() error) error {
		if n != o.pair.A {
			return start()
		}
		return within(dir, start)
	}
	const requestBytes = int(offeredEach * limitedRate * float64(requests) / 1e9)
	err = inside(into, func() error {
		port := testbed.Port{Number: limitedTCP, RequestBytes: requestBytes, ReplyBytes: 1}
		if f.tcp, err = o.Receiver(into, testbed.ReceiverConfig{Ports: []testbed.Port{port}}); err != nil {
			return err
		}
		if f.udp, err = datagram.StartReceiver(into, netip.AddrPortFrom(to, limitedUDP)); err != nil {
			return err
		}
		o.Defer(f.udp.Close)
		return nil
	})
	if err != nil {
		return f, err
	}
	return f, inside(from, func() error {
		tx, err := o.Sender(from, testbed.SenderConfig{
			To: netip.AddrPortFrom(to, limitedTCP).String(), Mode: testbed.Request, RequestBytes: requestBytes, ReplyBytes: 1, Pause: requests,
		})
		if err != nil {
			return err
		}
		dgrams, err := datagram.StartSender(from, datagram.SenderConfig{To: netip.AddrPortFrom(to, limitedUDP), PayloadBytes: limitedPayload, Rate: offeredEach * limitedRate})
		if err != nil {
			return err
		}
		o.Defer(dgrams.Close)
		if _, err := tx.Start(); err != nil {
			return err
		}
		return dgrams.Start()
	})
}

// within calls fn while this process is in the cgroup, so that fn's child processes are in it, too.
func within(dir string, fn func() error) error {
	r, err := identity.New(identity.Options{})
	if err != nil {
		return err
	}
	own, err := r.ProcessCgroup(os.Getpid())
	if err != nil {
		return err
	}
	if err := enter(dir); err != nil {
		return err
	}
	return errors.Join(fn(), enter(filepath.Join(filepath.Dir(dir), own)))
}

func enter(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter a cgroup: %w", err)
	}
	return nil
}

// limit limits the traffic, and waits until the needed queue exists: netnice makes the queue for UDP egress when
// there is an excess.
func (l *limited) limit(ctx context.Context, o *bench) error {
	rate := uint64(limitedRate)
	_, err := o.Client.Set(ctx, api.SetRequest{
		Subject: api.Subject{Kind: api.KindCgroup, ID: "/" + filepath.Base(l.dir)},
		Wish:    api.Wish{UpBytesPerSec: &rate, DownBytesPerSec: &rate},
	})
	if err != nil {
		return fmt.Errorf("limit the programs of %s: %w", l.dir, err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		status, err := o.Client.Status(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(status.Programs, func(p api.Program) bool { return p.Name == "send_out" && p.Attached }) {
			return nil
		}
		if err := testbed.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("there is no queue for what the limited programs send by UDP")
}

// measure records the rates of the traffic.
func (l *limited) measure(ctx context.Context) error {
	const segment, packet = 52, 28.0 // headers
	begin := testbed.Now()
	if err := testbed.Sleep(ctx, 3*time.Second); err != nil {
		return err
	}
	end := testbed.Now()
	if err := testbed.Sleep(ctx, 60*time.Millisecond); err != nil { // for the last sample
		return err
	}
	for i, f := range l.ways {
		came, err := f.udp.Arrived(begin, end, 1)
		if err != nil {
			return err
		}
		l.Rates[i].UDP = came.PerSecond * (limitedPayload + packet)
		l.Rates[i].TCP = f.tcp.Goodput(0, begin, end) * (1 + segment/1448.0)
	}
	return nil
}
