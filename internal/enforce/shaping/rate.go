package shaping

import (
	"math"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

const (
	linkHeader  = 14   // bytes that the queue counts beside a packet
	usualPacket = 1500 // before it is known how large packets are

	// queueTime is how much a limit's queue may hold. Windows keep TCP's part
	// of it far below; it is what a burst of UDP finds.
	queueTime = 50 * time.Millisecond
	// leastQueue has room for one largest packet and the first segments of a
	// few dozen connections.
	leastQueue = 192 << 10
	mostQueue  = 64 << 20
	// When a limit begins or is lowered, what its connections send still, for
	// their windows are as large as they were, finds room; half as much at every
	// look, so that they slow down one by one.
	wideTime       = time.Second
	leastWideQueue = 4 << 20
	// leastBurst is what one turn of the queue lets through at most late.
	leastBurst = 2 * (usualPacket + linkHeader)
	// tick of HTB's times
	tickNS = 64
	// drained is a rate at which a queue that is to go is empty at once.
	drained = 100e9
)

// ceiling is the rate of a node on what comes in, alone or together with what is
// sent, and the unused time that may be made up for. 0 is none.
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

// total is the rate of a node on both directions together, as far as it concerns
// what comes in. 0 is none.
func total(spec enforce.NodeSpec) uint64 {
	if spec.MeterOff {
		return 0
	}
	return directionCeiling(spec, enforce.Total)
}

// class is what HTB is told of a node.
type class struct {
	rate        uint64 // link bytes per second
	bufferTicks uint32
	queueBytes  uint32
}

// classOf turns a ceiling in IP bytes into HTB's terms. share is the part of
// HTB's bytes that are IP's; aside is what passes beside the queue per second.
func classOf(rate, burstNS uint64, share float64, aside uint64) class {
	if burstNS == 0 {
		burstNS = uint64(DefaultBurst)
	}
	inside := float64(rate) - float64(aside)
	inside = max(inside, float64(rate)/100, 1)
	link := inside / share
	c := class{rate: uint64(link + 0.5)}
	if c.rate&math.MaxUint32 == 0 {
		c.rate++ // the lower half stands alone in a field that may not be 0
	}
	ns := max(float64(burstNS), leastBurst/link*1e9)
	c.bufferTicks = uint32(min(ns/tickNS, math.MaxInt32))
	c.queueBytes = uint32(min(max(link*queueTime.Seconds(), leastQueue), mostQueue))
	return c
}

// narrow is after how many looks the queue of a limit is as short as it gets.
const narrow = 31

// wide is the class with the queue of a limit that began some looks ago.
func (c class) wide(looks int) class {
	most := uint32(min(max(float64(c.rate)*wideTime.Seconds(), leastWideQueue), mostQueue))
	c.queueBytes = max(c.queueBytes, most>>min(looks, narrow))
	return c
}

// phased is the class of one of many slow sockets: those that begin together would
// let their segments through at the same moments for ever. So the queue of each begins
// up to one turn further on, the next one's by the golden section later.
func (c class) phased(node uint32) class {
	part := float64(node*0x9e3779b1) / (1 << 32)
	ticks := float64(c.bufferTicks) + part*leastBurst/float64(c.rate)*1e9/tickNS
	c.bufferTicks = uint32(min(ticks, math.MaxInt32))
	return c
}

// usualShare is the part of HTB's bytes that are IP's, as long as no packet has
// been seen.
const usualShare = float64(usualPacket) / (usualPacket + linkHeader)

// mix is what a node's traffic consists of, as measured between two looks.
type mix struct {
	at     time.Time
	last   bpf.Inflow
	share  float64 // of IP in the queue's bytes
	packet float64 // IP bytes of one
	aside  uint64  // bytes per second beside the queue
}

// freshMix is that of a node of which nothing has come yet.
func freshMix() mix { return mix{at: time.Now(), share: usualShare, packet: usualPacket} }

// on is the part of the queue's bytes that count on a line which carries more than IP bytes: 1 or
// more of them.
func (m *mix) on(l enforce.Line) float64 {
	return m.share * m.perByte(l)
}

// inside is the rate of a class in IP bytes per second, 1 at least.
func (m *mix) inside(c class) uint64 {
	return uint64(max(float64(c.rate)*m.share, 1))
}

// perByte is what counts on a line of a byte of IP's, in the mean.
func (m *mix) perByte(l enforce.Line) float64 {
	if l == (enforce.Line{}) {
		return 1
	}
	return lineBytes(l, m.packet) / m.packet
}

// lineBytes is what a line carries for a packet of so many IP bytes; of packets whose mean that
// is, half a cell is empty in the mean.
func lineBytes(l enforce.Line, packet float64) float64 {
	const payload, cell = 48, 53
	at := max(packet+float64(l.OverheadBytes), float64(l.LeastBytes))
	if l.Cells {
		at = math.Ceil(at/payload) * cell
	}
	return at
}

// leastMeasured is how much has to have come through for its mix to count.
const leastMeasured = 64 << 10

// update learns from the counters as they are now.
func (m *mix) update(now bpf.Inflow, at time.Time) {
	link := now.LinkBytes - m.last.LinkBytes
	span := at.Sub(m.at)
	if span < 200*time.Millisecond || link < leastMeasured && span < 5*time.Second {
		return
	}
	aside := now.AsideBytes - m.last.AsideBytes
	if link >= leastMeasured {
		inside := float64(now.Bytes - m.last.Bytes - aside)
		m.share = inside / float64(link)
		if packets := (float64(link) - inside) / linkHeader; packets >= 1 {
			m.packet = inside / packets
		}
	}
	m.aside = uint64(float64(aside) / span.Seconds())
	m.at, m.last = at, now
}

// differs says whether a class is worth being told anew.
func (c class) differs(from class) bool {
	if c.queueBytes < from.queueBytes/2+1 {
		return true
	}
	off := math.Abs(float64(c.rate)-float64(from.rate)) / float64(from.rate)
	return off > 0.001
}
