package capture_test

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/capture"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

func TestRates(t *testing.T) {
	second := testbed.Instant(time.Second)
	packets := []capture.Packet{
		{T: second - 1, Bytes: 1000, From: 1},
		{T: second, Bytes: 100, From: 1},
		{T: second + second/2, Bytes: 200, From: 2},
		{T: 2 * second, Bytes: 400, From: 1},
		{T: 3 * second, Bytes: 5000, From: 1},
	}
	if got := capture.Rates(packets, second, 3*second, time.Second, nil); !slices.Equal(got, []float64{300, 400}) {
		t.Errorf("rates %v", got)
	}
	one := capture.Rates(packets, second, 3*second, time.Second, func(p capture.Packet) bool { return p.From == 2 })
	if !slices.Equal(one, []float64{200, 0}) {
		t.Errorf("rates of one port %v", one)
	}
}

// The capture holds the packets that were sent, with their headers.
func TestCapture(t *testing.T) {
	pair := testutil.MustPair(t)
	if err := capture.Segment(pair.A); err != nil {
		t.Fatal(err)
	}
	rx, err := testbed.StartReceiver(pair.B, testbed.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	c, err := capture.Start(pair.B)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := capture.StartSent(pair.A)
	if err != nil {
		t.Fatal(err)
	}
	const payload = 100000
	begin := testbed.Now()
	tx, err := testbed.StartSender(pair.A, testbed.SenderConfig{
		To: netip.AddrPortFrom(pair.B4, testbed.DefaultPort).String(), Bytes: payload,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Start(); err != nil {
		t.Fatal(err)
	}
	<-tx.Done()
	time.Sleep(100 * time.Millisecond)
	report, err := tx.Stop()
	if err != nil {
		t.Fatal(err)
	}
	packets, err := c.Stop()
	if err != nil {
		t.Fatal(err)
	}
	left, err := sent.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(packets) {
		t.Errorf("%d packets left, %d arrived", len(left), len(packets))
	}
	got, segments := 0, 0
	for _, p := range packets {
		if p.To != testbed.DefaultPort || p.From != report.Conns[0].LocalPort {
			t.Errorf("packet from %d to %d", p.From, p.To)
		}
		if p.Bytes > 1500 || p.T < begin || p.T > testbed.Now() {
			t.Errorf("packet of %d bytes after %v", p.Bytes, p.T.Sub(begin))
		}
		if p.Bytes > 100 {
			segments++
			got += p.Bytes - 52
		}
	}
	// A busy machine has TCP cut a segment short, or repeat one.
	const full, short = 1448, 10
	least, repeated := (payload+full-1)/full, retransmitted(t, pair.A)
	if got < payload || got > payload+repeated*full || segments < least || segments > least+short+repeated {
		t.Errorf("%d bytes in %d segments, want %d in %d or a few more (%d repeated)", got, segments, payload, least, repeated)
	}
}

// retransmitted returns the number of segments that TCP has repeated in the namespace.
func retransmitted(t *testing.T, n *testbed.NetNS) (segments int) {
	t.Helper()
	err := n.Do(func() error {
		fs, err := procfs.NewDefaultFS()
		if err != nil {
			return err
		}
		thread, err := fs.Thread(os.Getpid(), unix.Gettid())
		if err != nil {
			return err
		}
		counters, err := thread.Snmp()
		if err != nil {
			return err
		}
		if counters.RetransSegs == nil {
			return errors.New("TCP does not count them")
		}
		segments = int(*counters.RetransSegs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return segments
}
