package shaping

import (
	"slices"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/bpf"
)

// A queue that is held is there before anything is sent, so that no flood loses its first packets; and
// while nothing is sent, until it is let go of.
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
	must(t, k.SetNode(sending(100*limit))) // for what is in the queue
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
		entry.UsedNs = monotonicNS() - uint64(2*sendIdle)
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
