package relay

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chunkMax  = vnetLen + 65536 + 256
	readBatch = 16 // chunks, before due packets are delivered
	sendBatch = 64 // packets, before the clock is read again

	leastStall = 5 * time.Millisecond
)

// direction moves packets from one device to the other.
type direction struct {
	from, to int // descriptors
	travel   *travel
	queue    *queue
	count    Counters
	late     time.Duration // sum
	chunk    []byte
}

func newDirection(from, to int, p Path, seed, stream uint64) *direction {
	bytes := memory(p)
	return &direction{
		from: from, to: to,
		travel: newTravel(p, seed, stream),
		queue:  newQueue(bytes, bytes/128),
		chunk:  make([]byte, chunkMax),
		count:  Counters{Buffer: bytes},
	}
}

// memory returns the bytes of memory that a direction may need. They are the bytes that 1 GB/s puts on the way,
// within bounds, and the bottleneck's buffer. The kernel allocates only the part in use.
func memory(p Path) int {
	const least, most, perSecond = 16 << 20, 256 << 20, 1e9
	bytes := int((p.Delay + p.Jitter).Seconds() * perSecond)
	return min(max(bytes, least), most) + p.buffer()
}

// read takes chunks off the device until there are no more, or enough for one turn.
func (d *direction) read(now int64) error {
	for range readBatch {
		n, err := unix.Read(d.from, d.chunk)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		d.count.Chunks++
		err = segments(d.chunk[:n], func(headers, payload []byte) { d.packet(now, headers, payload) })
		if err != nil {
			d.count.Malformed++
		}
	}
	return nil
}

// stalled returns the time for which the relay let a due packet wait since its last call.
func (d *direction) stalled(before, now int64) time.Duration {
	_, due, ok := d.queue.head()
	if wait := now - max(due, before); ok && wait > int64(leastStall) {
		return time.Duration(wait)
	}
	return 0
}

func (d *direction) packet(now int64, headers, payload []byte) {
	bytes := len(headers) + len(payload) - vnetLen
	d.count.PacketsIn++
	d.count.BytesIn += uint64(bytes)
	f, due, queued := d.travel.packet(now, bytes)
	d.count.MostQueue = max(d.count.MostQueue, queued)
	switch {
	case f == lost:
		d.count.Lost++
	case f == full:
		d.count.Dropped++
	case !d.queue.push(due, headers, payload):
		d.count.Overflowed++
	}
}

// deliver writes the due packets. It returns the departure time of the next packet, or 0 if there is none.
func (d *direction) deliver(now int64) int64 {
	for range sendBatch {
		packet, due, ok := d.queue.head()
		if !ok {
			return 0
		}
		if due > now {
			return due
		}
		if _, err := unix.Write(d.to, packet); err != nil {
			d.count.Refused++
		} else {
			d.count.Packets++
			d.count.Bytes += uint64(len(packet) - vnetLen)
		}
		d.late += time.Duration(now - due)
		d.count.MostLate = max(d.count.MostLate, time.Duration(now-due))
		d.queue.pop()
	}
	return now
}

func (d *direction) counters() Counters {
	c := d.count
	c.InFlight = d.queue.count
	if sent := c.Packets + c.Refused; sent > 0 {
		c.MeanLate = d.late / time.Duration(sent)
	}
	return c
}

// set changes the path. Packets on the way keep their arrival times, and later packets do not arrive before them.
func (d *direction) set(p Path) {
	d.travel.path = p
}

// forward runs both directions on the calling thread until orders ends or fails. forward calls orders when its
// descriptor is readable.
func forward(both [2]*direction, control int, orders func() error) error {
	fds := []unix.PollFd{
		{Fd: int32(both[0].from), Events: unix.POLLIN},
		{Fd: int32(both[1].from), Events: unix.POLLIN},
		{Fd: int32(control), Events: unix.POLLIN},
	}
	before := monotonic()
	for {
		now := monotonic()
		stalled := max(both[0].stalled(before, now), both[1].stalled(before, now))
		before = now
		var next int64
		for _, d := range both {
			d.count.Stalled += stalled
			due := d.deliver(now)
			if due > 0 && (next == 0 || due < next) {
				next = due
			}
		}
		var timeout *unix.Timespec
		if next > 0 {
			t := unix.NsecToTimespec(max(next-monotonic(), 0))
			timeout = &t
		}
		if _, err := unix.Ppoll(fds, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		now = monotonic()
		for i, d := range both {
			if fds[i].Revents != 0 {
				if err := d.read(now); err != nil {
					return err
				}
			}
		}
		if fds[2].Revents != 0 {
			if err := orders(); err != nil {
				return err
			}
		}
	}
}

func monotonic() int64 {
	var ts unix.Timespec
	// CLOCK_MONOTONIC exists on every Linux; the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
