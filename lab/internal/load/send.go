package load

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// Sent holds the results of a sender over a while.
type Sent struct {
	BytesPerSec float64 `json:"payload_bytes_per_sec"`
	Percent     float64 `json:"percent"` // per cent of one processor, including its time in the kernel
}

const settle = 400 * time.Millisecond

// Send starts a sender of one connection, calls prepare for it, and measures it for a while.
func Send(ctx context.Context, n *testbed.NetNS, rx *testbed.Receiver, c testbed.SenderConfig, d time.Duration, prepare func(pid int) error) (s Sent, err error) {
	tx, err := testbed.StartSender(n, c)
	if err != nil {
		return s, err
	}
	defer tx.Close()
	if err := prepare(tx.PID()); err != nil {
		return s, err
	}
	if _, err := tx.Start(); err != nil {
		return s, err
	}
	if s, err = measure(ctx, rx, tx.PID(), d); err != nil {
		return s, err
	}
	_, err = tx.Stop()
	return s, err
}

// measure returns the sender's processor time, and the rate of arriving data.
func measure(ctx context.Context, rx *testbed.Receiver, pid int, d time.Duration) (s Sent, err error) {
	if err := testbed.Sleep(ctx, settle); err != nil {
		return s, err
	}
	before := Threads(pid)
	from := testbed.Now()
	if err := testbed.Sleep(ctx, d); err != nil {
		return s, err
	}
	after := Threads(pid)
	to := testbed.Now()
	if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil { // for the last sample
		return s, err
	}
	s.BytesPerSec = rx.Goodput(0, from, to)
	s.Percent = (after - before) / to.Sub(from).Seconds() * 100
	return s, nil
}

// Pin keeps all threads of a process on one processor; later threads inherit that.
func Pin(pid, processor int) error {
	var set unix.CPUSet
	set.Set(processor)
	threads, err := threadsOf(pid)
	if err != nil {
		return err
	}
	for _, tid := range threads {
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("keep process %d on one processor: %w", pid, err)
		}
	}
	return nil
}
