package shaping

import (
	"math"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/due"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

const (
	linkHeader  = 14         // bytes that the queue counts for each packet in addition to its IP bytes
	usualPacket = due.Packet // size of a packet in IP bytes, until packets have been measured

	// queueTime is how much a limit's queue may hold, as time at its rate. Receive windows keep TCP's backlog far below
	// that. The rest is for bursts of UDP.
	queueTime = 50 * time.Millisecond
	// leastQueue holds, in bytes, one largest packet and the first segments of a few dozen connections.
	leastQueue = 192 << 10
	mostQueue  = 64 << 20
	// wideTime and leastWideQueue size the queue of a limit that begins or is lowered. The windows of its connections
	// are still as large as before, and the queue holds what they let through. Each look halves the queue, so that
	// the connections slow down one by one.
	wideTime       = time.Second
	leastWideQueue = 4 << 20
	// leastBurst is the least burst of a class, in bytes: the amount that one turn of the queue may let through late.
	leastBurst = 2 * (usualPacket + linkHeader)
	// tickNS is the unit of HTB's times, in ns.
	tickNS = 64
)

// ceiling returns the lowest ceiling of a node that holds for ingress, alone or together with egress, and its burst. A
// rate of 0 means that there is none.
func ceiling(spec enforce.NodeSpec) (rate, burstNS uint64) {
	for _, limits := range spec.Ceilings {
		for _, d := range []enforce.Direction{enforce.Down, enforce.Total} {
			c := limits[d]
			if c.BytesPerSec == 0 || rate != 0 && c.BytesPerSec >= rate || d == enforce.Total && spec.MeterOff {
				continue
			}
			rate, burstNS = c.BytesPerSec, c.BurstNS
		}
	}
	return rate, burstNS
}

// total returns the ceiling of a node on both directions together, if received bytes count against it. 0 means none.
func total(spec enforce.NodeSpec) uint64 {
	if spec.MeterOff {
		return 0
	}
	return directionCeiling(spec, enforce.Total)
}

// class holds the parameters of a node's class in HTB.
type class struct {
	rate        uint64 // link bytes per second
	bufferTicks uint32
	queueBytes  uint32
}

// htb returns the class for the pair of devices.
func (c class) htb() queuepair.Class {
	return queuepair.Class{Rate: c.rate, BufferTicks: c.bufferTicks, QueueBytes: c.queueBytes}
}

// classOf converts a ceiling in IP bytes, or in bytes of a line, into parameters of HTB. share is the number of these
// bytes for each byte that HTB counts. aside is the traffic that passes beside the queue, in bytes per second.
func classOf(rate, burstNS uint64, share float64, aside uint64) class {
	if burstNS == 0 {
		burstNS = uint64(enforce.DefaultBurst)
	}
	inside := float64(rate) - float64(aside)
	inside = max(inside, float64(rate)/100, 1)
	link := inside / share
	c := class{rate: uint64(link + 0.5)}
	if c.rate&math.MaxUint32 == 0 {
		c.rate++ // one field holds only the lower half, and it may not be 0
	}
	ns := max(float64(burstNS), leastBurst/link*1e9)
	c.bufferTicks = uint32(min(ns/tickNS, math.MaxInt32))
	c.queueBytes = uint32(min(max(link*queueTime.Seconds(), leastQueue), mostQueue))
	return c
}

// narrow is the number of looks after which the queue of a limit has its final size.
const narrow = 31

// wide returns the class with the larger queue of a limit that began this number of looks ago.
func (c class) wide(looks int) class {
	most := uint32(min(max(float64(c.rate)*wideTime.Seconds(), leastWideQueue), mostQueue))
	c.queueBytes = max(c.queueBytes, most>>min(looks, narrow))
	return c
}

// phased returns the class of one of many slow sockets. Otherwise, the queues of sockets that begin together would let
// segments through at the same moments for ever. Here the queue of each socket begins up to one turn further on. The
// queue of the next node begins later by the golden section of a turn.
func (c class) phased(node uint32) class {
	part := float64(node*0x9e3779b1) / (1 << 32)
	ticks := float64(c.bufferTicks) + part*leastBurst/float64(c.rate)*1e9/tickNS
	c.bufferTicks = uint32(min(ticks, math.MaxInt32))
	return c
}

// usualShare is the part of HTB's bytes that are IP bytes, until packets have been measured.
const usualShare = float64(usualPacket) / (usualPacket + linkHeader)

// mix describes the packets of a node's traffic, as measured between two looks.
type mix struct {
	at     time.Time
	last   bpf.Inflow
	share  float64 // the part of the queue's bytes that are IP bytes
	packet float64 // mean IP bytes of a packet
	aside  uint64  // bytes per second beside the queue
}

// freshMix returns the mix of a node whose traffic has not been measured yet.
func freshMix() mix { return mix{at: time.Now(), share: usualShare, packet: usualPacket} }

// on returns the number of bytes that count on a line for each byte of the queue. It may be 1 or more if the line
// carries more than IP bytes.
func (m *mix) on(l enforce.Line) float64 {
	return m.share * m.perByte(l)
}

// inside returns the rate of a class in IP bytes per second, 1 at least.
func (m *mix) inside(c class) uint64 {
	return uint64(max(float64(c.rate)*m.share, 1))
}

// perByte returns the mean number of bytes that count on a line for one IP byte.
func (m *mix) perByte(l enforce.Line) float64 {
	if l == (enforce.Line{}) {
		return 1
	}
	return l.Bytes(m.packet) / m.packet
}

// leastMeasured is the number of the queue's bytes that update needs to measure a mix. A slow queue has fewer in
// slowMeasured: then half of what it may let through is enough. Traffic that is far below the limit says nothing of what
// comes when it is reached.
const (
	leastMeasured = 64 << 10
	slowMeasured  = 5 * time.Second
)

// update measures the mix, from the difference of the present counters and the last ones. rate is the queue's, in
// bytes/s with link headers.
func (m *mix) update(now bpf.Inflow, at time.Time, rate uint64) {
	link := now.LinkBytes - m.last.LinkBytes
	span := at.Sub(m.at)
	if span < 200*time.Millisecond || link < leastMeasured && span < slowMeasured {
		return
	}
	aside := now.AsideBytes - m.last.AsideBytes
	if link >= leastMeasured || link > 0 && float64(link) >= float64(rate)*span.Seconds()/2 {
		inside := float64(now.Bytes - m.last.Bytes - aside)
		m.share = inside / float64(link)
		if packets := (float64(link) - inside) / linkHeader; packets >= 1 {
			m.packet = inside / packets
		}
	}
	m.aside = uint64(float64(aside) / span.Seconds())
	m.at, m.last = at, now
}

// differs reports whether a class differs so much from the one that HTB has that setting it again is worthwhile.
func (c class) differs(from class) bool {
	if c.queueBytes < from.queueBytes/2+1 {
		return true
	}
	off := math.Abs(float64(c.rate)-float64(from.rate)) / float64(from.rate)
	return off > 0.001
}
