package datagram

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	MaybeRun()
	os.Exit(m.Run())
}

func TestCount(t *testing.T) {
	const ms = testbed.Instant(time.Millisecond)
	all := []arrival{{1 * ms, 10}, {3 * ms, 11}, {5 * ms, 12}, {7 * ms, 15}, {9 * ms, 16}, {19 * ms, 17}, {30 * ms, 20}}
	f := count(all, 3*ms, 30*ms, 2)
	if f.Count != 5 || f.Lost != 2 || f.Longest != 10*time.Millisecond {
		t.Errorf("%+v", f)
	}
	if got := f.PerSecond; got < 249.9 || got > 250.1 { // 4 gaps in 16 ms
		t.Errorf("%v per second", got)
	}
	// The gaps have 3 to 7 and 7 to 19 ms.
	if f.Median != 4*time.Millisecond || f.P95 != 12*time.Millisecond || f.Deviation < 0.706 || f.Deviation > 0.708 {
		t.Errorf("gaps %+v", f)
	}
	if f := count(all, 0, 2*ms, 1); f.Count != 1 || f.PerSecond != 0 || f.Lost != 0 {
		t.Errorf("one datagram: %+v", f)
	}
	if f := count(all[:4], 0, 30*ms, 1); f.Deviation != 0 {
		t.Errorf("equal gaps: %+v", f)
	}
}

// Datagrams sent at a rate arrive at that rate, over IPv4 and IPv6, and are counted once.
func TestSendReceive(t *testing.T) {
	pair := testutil.MustPair(t)
	for _, to := range []netip.Addr{pair.B4, pair.B6} {
		at := netip.AddrPortFrom(to, 6001)
		rx, err := StartReceiver(pair.B, at)
		if err != nil {
			t.Fatal(err)
		}
		defer rx.Close()
		const rate, size = 200e3, 100
		tx, err := StartSender(pair.A, SenderConfig{To: at, PayloadBytes: size, Rate: rate, UID: 64209})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		begin := testbed.Now()
		if err := tx.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		sent, err := tx.Sent()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		f, err := rx.Arrived(begin, testbed.Now(), 1)
		if err != nil {
			t.Fatal(err)
		}
		took := sent.At.Sub(begin).Seconds()
		if n := float64(sent.Count); n > rate/size*took*1.02+20 || n < rate/size*took/2 || sent.Failures() > 0 || sent.InCall <= 0 || sent.InCall.Seconds() > took {
			t.Errorf("sent %+v in %v s", sent, took)
		}
		if f.Count < sent.Count || f.Lost != 0 || f.Refused != 0 || f.Median <= 0 {
			t.Errorf("arrived %+v of %+v", f, sent)
		}
	}
}

// A waiting call counts for as long as it waits, and a failed call counts as no datagram.
func TestFailures(t *testing.T) {
	pair := testutil.MustPair(t)
	at := netip.AddrPortFrom(pair.B4, 6001) // no socket listens
	tx, err := StartSender(pair.A, SenderConfig{To: at, PayloadBytes: 100, Rate: 100e3})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := tx.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	sent, err := tx.Sent()
	if err != nil {
		t.Fatal(err)
	}
	if sent.Failed["ECONNREFUSED"] == 0 {
		t.Errorf("%+v", sent)
	}
}
