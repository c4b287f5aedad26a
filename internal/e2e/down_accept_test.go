package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The connections that a server accepts are limited from their first segment on. The same applies to an MPTCP listener,
// which Go programs have without a request for it.
func TestDownAccepted(t *testing.T) {
	t.Parallel()
	newInbound(newStage(t), testutil.MustPair(t)).accepts()
}

// The same applies where the sockets have no room for state: the listener's is in a table.
func TestAcceptsWithoutRoom(t *testing.T) {
	t.Parallel()
	p := testutil.MustPair(t)
	noRoom(t, p.A)
	newInbound(newStage(t), p).accepts()
}

func (f *inbound) accepts() {
	t := f.t
	t.Helper()
	pid := "pid:" + itoa(f.rx.PID())
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "64kB/s")
	for range 3 {
		x, err := testbed.StartSender(f.B, testbed.SenderConfig{To: f.A4.String() + ":5001", Connections: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
		before, begin := f.nodes()[pid].Down.Bytes, testbed.Now()
		if err := x.Connect(); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		end := testbed.Now()
		let := f.nodes()[pid].Down.Bytes - before
		f.until(end.Add(15 * time.Millisecond))
		got := f.rx.Goodput(5001, begin, end) * end.Sub(begin).Seconds()
		t.Logf("the program has received %.0f bytes, %d went through the queue", got, let)
		if got == 0 {
			t.Error("the program has received nothing")
		}
		if got > float64(let)+16e3 { // allows for bytes that came before the end of the handshake
			t.Errorf("the program has received %.0f bytes, and %d went through the queue", got, let)
		}
		if _, err := x.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
