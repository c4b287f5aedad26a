package shaping

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testbed"
)

// devicesIn returns the devices of another namespace, as devices does for the test's. No thread enters the namespace
// for that, because such a thread would count as a process that lives there.
func devicesIn(t *testing.T, n *testbed.NetNS) []string {
	t.Helper()
	return devicesBy(t, n.Netlink())
}

// send sends to an address until the test ends.
func send(t *testing.T, to string) {
	t.Helper()
	c, err := net.Dial("tcp", to)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		for buf := make([]byte, 64<<10); ; {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
}

// TestElsewhere limits a process in another namespace than the daemon's. It checks that the limit holds there, that
// another daemon takes it over, and that nothing of it stays afterwards.
func TestElsewhere(t *testing.T) {
	limit, least := 4e6, 0.85
	if os.Getenv("NETNICE_VM") != "" {
		limit, least = 1e6, 0.6 // emulated machines are slow
	}
	far := elsewhere(t)
	before, there := devices(t), devicesIn(t, far)
	rx, err := testbed.StartReceiver(far, testbed.ReceiverConfig{})
	must(t, err)
	defer rx.Close()
	k := opened(t)
	spec := own(uint64(limit))
	spec.Subject = uint64(rx.PID())
	must(t, k.SetNode(spec))
	send(t, theirs4+":5001")
	send(t, "["+theirs6+"]:5001")
	let := func(what string, k *Kernel, least, most float64) {
		t.Helper()
		was, _, err := k.Look(spec.ID)
		must(t, err)
		begin := time.Now()
		for range 3 {
			time.Sleep(time.Second)
			must(t, k.Maintain())
		}
		is, _, err := k.Look(spec.ID)
		must(t, err)
		got := float64(is.Down.Bytes-was.Down.Bytes) / time.Since(begin).Seconds() / limit
		t.Logf("%s: %.3f of the limit; %+v", what, got, is.Down)
		if got < least || got > most {
			t.Errorf("%s: %.3f of the limit", what, got)
		}
	}
	let("limited", k, least, 1.02)
	counters, err := k.Counters()
	must(t, err)
	for name, n := range counters {
		if n > 0 {
			t.Errorf("fault %s: %d", name, n)
		}
	}
	made, madeThere := devices(t), devicesIn(t, far)
	must(t, k.Close())
	k, err = Open(options())
	must(t, err)
	if got, gotThere := devices(t), devicesIn(t, far); !slices.Equal(got, made) || !slices.Equal(gotThere, madeThere) {
		t.Errorf("devices were %q, there %q, and are %q, %q", made, madeThere, got, gotThere)
	}
	let("taken over", k, least, 1.02)
	// After this no limited process lives there.
	must(t, rx.Close())
	time.Sleep(2 * placeIdle)
	must(t, k.Maintain())
	if got := devicesIn(t, far); !slices.Equal(got, there) {
		t.Errorf("devices there were %q and are %q", there, got)
	}
	if pins, _ := filepath.Glob(options().PinDir + "/link_device_*"); len(pins) > 0 {
		t.Errorf("programs are attached still: %q", pins)
	}
	must(t, k.Down())
	if got := devices(t); !slices.Equal(got, before) {
		t.Errorf("devices were %q and are %q", before, got)
	}
}

// TestTwoPlaces has processes of one limited user in two namespaces. It checks that they receive the limit together,
// not twice the limit.
func TestTwoPlaces(t *testing.T) {
	const limit = 4e6
	far := elsewhere(t)
	there, home := devicesIn(t, far), devices(t)
	rx, err := testbed.StartReceiver(far, testbed.ReceiverConfig{UID: 61234})
	must(t, err)
	defer rx.Close()
	k := opened(t)
	defer func() {
		must(t, k.Down())
		if got, gotThere := devices(t), devicesIn(t, far); !slices.Equal(got, home) || !slices.Equal(gotThere, there) {
			t.Errorf("devices were %q, there %q, and are %q, %q", home, there, got, gotThere)
		}
	}()
	user := enforce.NodeSpec{ID: 9, Kind: enforce.KindUser, Subject: 61234}
	user.Ceilings[enforce.OwnerAdmin][enforce.Down].BytesPerSec = limit
	must(t, k.SetNode(user))
	near, err := testbed.StartReceiver(nil, testbed.ReceiverConfig{UID: 61234})
	must(t, err)
	defer near.Close()
	send(t, theirs4+":5001")
	c := dial(t, far, "tcp", ours4+":5001")
	var stopped atomic.Bool
	defer stopped.Store(true)
	go func() {
		for buf := make([]byte, 64<<10); !stopped.Load(); {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	was, _, err := k.Look(user.ID)
	must(t, err)
	begin := time.Now()
	for range 3 {
		time.Sleep(time.Second)
		must(t, k.Maintain())
	}
	is, _, err := k.Look(user.ID)
	must(t, err)
	got := float64(is.Down.Bytes-was.Down.Bytes) / time.Since(begin).Seconds() / limit
	t.Logf("%.3f of the limit; %+v", got, is.Down)
	if got < 0.85 || got > 1.03 {
		t.Errorf("%.3f of the limit", got)
	}
}
