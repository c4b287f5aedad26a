package shaping

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/bpf"
)

// TestSentToAQueueThatIsHeld checks that a held queue exists before anything is sent, so that no flood loses its first
// packets. The queue also stays while nothing is sent, until its last holder releases it.
func TestSentToAQueueThatIsHeld(t *testing.T) {
	const limit = 200e3
	far := elsewhere(t)
	there := devicesIn(t, far)
	lived(t, far)
	to, _ := sinkHere(t, ours4)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	must(t, k.SetNode(sending(limit)))
	ns := numberOf(t, far)
	release, err := k.HoldQueue(ns)
	must(t, err)
	if now := devicesIn(t, far); slices.Equal(now, there) {
		t.Fatalf("it is held, and the devices are %q", now)
	}
	again, err := k.HoldQueue(ns)
	must(t, err)
	stop := floodIn(t, far, to)
	time.Sleep(patient(time.Second))
	stats, _, err := k.Look(7)
	must(t, err)
	if stop(); stats.Datagrams.QueuedBytes == 0 || stats.Datagrams.Dropped.Sum() > 0 {
		t.Errorf("of a flood %+v", stats.Datagrams)
	}
	must(t, k.SetNode(sending(100*limit))) // so that the queue runs empty soon
	idle := func() {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			k.mu.Lock()
			waiting, err := k.send.places[ns].waiting(0)
			k.mu.Unlock()
			must(t, err)
			if waiting == 0 {
				break
			}
			if time.Since(begin) > patient(10*time.Second) {
				t.Fatalf("%d packets wait still", waiting)
			}
		}
		var entry bpf.SendPlace
		must(t, k.send.obj.Sender.Lookup(ns, &entry))
		entry.UsedNs = bpf.NowNS() - uint64(2*sendIdle)
		must(t, k.send.obj.Sender.Put(ns, &entry))
		must(t, k.Maintain())
	}
	release()
	release()
	idle()
	if now := devicesIn(t, far); slices.Equal(now, there) {
		t.Error("one holds it still, and it is gone")
	}
	again()
	idle()
	if now := devicesIn(t, far); !slices.Equal(now, there) {
		t.Errorf("nobody holds it, and the devices are %q", now)
	}
}

// TestQueueHeldAtHome checks held queues of the daemon's own namespace. A queue that HoldQueue made goes when nobody
// holds it, unless something came into it. Then it stays, as others do.
func TestQueueHeldAtHome(t *testing.T) {
	before := devices(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	must(t, k.SetNode(sending(200e3)))
	hold := func() (release func()) {
		t.Helper()
		release, err := k.HoldQueue(0)
		must(t, err)
		if now := devices(t); slices.Equal(now, before) {
			t.Fatalf("it is held, and the devices are %q", now)
		}
		return release
	}
	release := hold()
	ages(t, k, false)
	if now := devices(t); slices.Equal(now, before) {
		t.Error("somebody holds it, and it is gone")
	}
	release()
	ages(t, k, false)
	if now := devices(t); !slices.Equal(now, before) {
		t.Errorf("nobody holds it, and the devices are %q", now)
	}
	release = hold()
	ages(t, k, true)
	release()
	ages(t, k, true)
	if now := devices(t); slices.Equal(now, before) {
		t.Error("it was used, and is gone")
	}
}

// ages makes the queue of the daemon's own namespace look as if it was made, or taken over, long ago. With used,
// packets seem to have come since.
func ages(t *testing.T, k *Kernel, used bool) {
	t.Helper()
	k.mu.Lock()
	p := k.sendingAt(k.send.home)
	p.entry.UsedNs = bpf.NowNS() - uint64(3*sendIdle)
	entry := p.entry
	if used {
		entry.UsedNs += uint64(sendIdle)
	}
	err := k.send.obj.Sender.Put(p.NS, &entry)
	k.mu.Unlock()
	must(t, err)
	must(t, k.Maintain())
}

// TestQueueHeldAtHomeIsTakenOver checks that the next process removes a queue that HoldQueue made, as the first process
// would. It keeps a queue that was used.
func TestQueueHeldAtHomeIsTakenOver(t *testing.T) {
	far := elsewhere(t)
	to, _ := sink(t, far, theirs4)
	before := devices(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	must(t, k.SetNode(sending(200e3)))
	for _, used := range []bool{false, true} {
		_, err := k.HoldQueue(0)
		must(t, err)
		if used {
			c, err := net.DialUDP("udp", nil, to)
			must(t, err)
			for range 100 { // 0.7 s at the limit
				_, err := c.Write(make([]byte, 1400))
				must(t, err)
			}
			must(t, c.Close())
		}
		must(t, k.Close())
		k, err = Open(options())
		must(t, err)
		if now := devices(t); slices.Equal(now, before) {
			t.Fatalf("a queue was held, and the devices are %q", now)
		}
		soon(t, "nothing waits", 5*time.Second, func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			waiting, err := k.sendingAt(k.send.home).waiting(0)
			return err == nil && waiting == 0
		})
		ages(t, k, false)
		if now := devices(t); slices.Equal(now, before) == used {
			t.Errorf("used %v, and the devices are %q, were %q", used, now, before)
		}
	}
}
