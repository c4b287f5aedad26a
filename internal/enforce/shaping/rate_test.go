package shaping

import (
	"math"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

func TestCeiling(t *testing.T) {
	var spec enforce.NodeSpec
	if rate, _ := ceiling(spec); rate != 0 {
		t.Errorf("no limit is %d", rate)
	}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = 1
	spec.Ceilings[enforce.OwnerAdmin][enforce.Down] = enforce.Ceiling{BytesPerSec: 20, BurstNS: 5}
	spec.Ceilings[enforce.OwnerUser][enforce.Down] = enforce.Ceiling{BytesPerSec: 10, BurstNS: 7}
	if rate, burst := ceiling(spec); rate != 10 || burst != 7 {
		t.Errorf("got %d, %d, want the lower limit with its burst", rate, burst)
	}
}

func TestClassOf(t *testing.T) {
	for _, rate := range []uint64{1, 1000, 1e6, 125e6, 1250e6, 1 << 32, 1 << 40} {
		c := classOf(rate, 0, usualShare, 0)
		got := float64(c.rate) * usualPacket / (usualPacket + linkHeader)
		if math.Abs(got-float64(rate)) > 1+float64(rate)*1e-6 {
			t.Errorf("%d IP bytes/s are %d link bytes/s, of which %.1f are IP's", rate, c.rate, got)
		}
		if burst := float64(c.bufferTicks) * tickNS / 1e9 * float64(c.rate); burst < leastBurst*0.999 && c.bufferTicks < math.MaxInt32 {
			t.Errorf("at %d bytes/s the burst is %.0f bytes", rate, burst)
		}
		if c.queueBytes < leastQueue || c.queueBytes > mostQueue {
			t.Errorf("at %d bytes/s the queue has %d bytes", rate, c.queueBytes)
		}
		if w := c.wide(0); w.queueBytes < c.queueBytes || w.rate != c.rate || c.wide(20) != c {
			t.Errorf("at %d bytes/s the wide queue has %d bytes", rate, w.queueBytes)
		}
		if uint32(c.rate) == 0 {
			t.Errorf("at %d bytes/s the lower half of the rate is 0", rate)
		}
	}
	if c := classOf(1e6, 0, 1, 200e3); c.rate != 800e3 {
		t.Errorf("with 200 kB/s beside the queue it has %d bytes/s", c.rate)
	}
	if c := classOf(1e6, 0, 1, 5e6); c.rate != 10e3 {
		t.Errorf("with more than the limit beside the queue it has %d bytes/s", c.rate)
	}
}

// TestMix checks that the packets that pass determine the share of IP bytes in the bytes that HTB counts.
func TestMix(t *testing.T) {
	begin := time.Now()
	m := mix{at: begin, share: usualShare}
	m.update(bpf.Inflow{Bytes: 1000, LinkBytes: 1014}, begin.Add(time.Second), 1e6)
	if m.share != usualShare {
		t.Errorf("a single packet counts: %v", m.share)
	}
	// 1000 packets of 228 bytes pass through the queue, and 40 kB pass beside it.
	m.update(bpf.Inflow{Bytes: 228e3 + 40e3, LinkBytes: 242e3, AsideBytes: 40e3}, begin.Add(2*time.Second), 1e6)
	if want := 228.0 / 242; math.Abs(m.share-want) > 1e-9 || m.aside != 20e3 {
		t.Errorf("share %v, want %v; aside %d, want 20000", m.share, want, m.aside)
	}
	if got := m.inside(classOf(1e6, 0, m.share, m.aside)); got < 980e3-1 || got > 980e3+1 {
		t.Errorf("of 1 MB/s its queue has %d IP bytes/s, want 980000", got)
	}
}

// TestMixOfSlowQueue checks that a queue which lets less than 64 KB through in five seconds is measured while it is in use,
// and only then.
func TestMixOfSlowQueue(t *testing.T) {
	const rate = 3500
	begin := time.Now()
	m := mix{at: begin, share: usualShare}
	idle := bpf.Inflow{Bytes: 10 * 40, LinkBytes: 10 * 54}
	m.update(idle, begin.Add(slowMeasured), rate)
	if m.share != usualShare {
		t.Errorf("10 packets of 40 bytes in 5 s count: %v", m.share)
	}
	full := bpf.Inflow{Bytes: idle.Bytes + 31*544, LinkBytes: idle.LinkBytes + 31*558}
	m.update(full, begin.Add(2*slowMeasured), rate)
	if want := 544.0 / 558; math.Abs(m.share-want) > 1e-9 {
		t.Errorf("share %v, want %v", m.share, want)
	}
}

// TestPhased checks that the queues of slow sockets begin at different times, spread over one turn. The queues of fast
// sockets begin at almost the same time.
func TestPhased(t *testing.T) {
	c := classOf(3000, 0, usualShare, 0)
	var parts [4]int
	for node := uint32(1); node <= 100; node++ {
		p := c.phased(node)
		more := float64(p.bufferTicks-c.bufferTicks) * tickNS / 1e9 * float64(c.rate) / leastBurst
		if more < 0 || more >= 1 {
			t.Fatalf("node %d begins %.3f turns further on", node, more)
		}
		parts[int(more*4)]++
	}
	for _, n := range parts {
		if n < 23 || n > 27 {
			t.Errorf("quarters of a turn have %v of 100 nodes", parts)
			break
		}
	}
	fast := classOf(100e6, 0, usualShare, 0)
	if p := fast.phased(1); float64(p.bufferTicks) > float64(fast.bufferTicks)*1.01 {
		t.Errorf("at 100 MB/s %d ticks became %d", fast.bufferTicks, p.bufferTicks)
	}
}
