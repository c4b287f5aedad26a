package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds and defaults of a measurement.
const (
	DefaultShare    = 0.5
	DefaultDuration = 30 * time.Second
	DefaultBytes    = 32 << 20
	trainsLeft      = 16   // most trains that measure the available rate
	secondsLeft     = 0.15 // approximate duration of such a train, seconds
	longestTrain    = 2048 // packets
	// fragments is the number of fragments of a packet, where the machine cannot send single packets fast enough.
	fragments  = 11
	firstTrain = 8
)

// Options of a measurement.
type Options struct {
	// Share of the path's capacity that probe packets may use on average, 0..1; 0 for a half.
	// Trains that do not yet fill a queue are sent before the capacity is known.
	Share float64
	// Duration after which Measure begins no train, 0 for 30 s.
	Duration time.Duration
	// Bytes are the IP bytes beyond which Measure begins no train, 0 for 32 MiB.
	Bytes uint64
	// Size of packets in IP bytes, 0 for 1500 or the route's MTU.
	Size int
	// Progress is called at each step; it may be nil.
	Progress func(Progress)
}

// Progress of a measurement.
type Progress struct {
	Step        string  // "reaching", "capacity", "available"
	Trains      int     // so far
	SentBytes   uint64  // so far
	BytesPerSec float64 // the latest figure, 0 while there is none
}

// Figure with its uncertainty, both in IP bytes/s.
type Figure struct {
	BytesPerSec float64 `json:"bytes_per_sec"`
	// PlusMinus is about one standard error.
	PlusMinus float64 `json:"plus_minus_bytes_per_sec"`
	// AtLeast says that the figure is a lower bound only.
	AtLeast bool `json:"at_least,omitempty"`
}

// Result of a measurement.
type Result struct {
	Kind      Kind   `json:"kind"`
	Capacity  Figure `json:"capacity"`
	Available Figure `json:"available"`
	// BurstBytes arrived at once before the bottleneck's rate held: roughly the depth of a token bucket.
	BurstBytes int           `json:"burst_bytes"`
	RoundTrip  time.Duration `json:"round_trip_ns"` // the least one
	Trains     int           `json:"trains"`
	SentBytes  uint64        `json:"sent_bytes"`
	Took       time.Duration `json:"took_ns"`
	Lost       int           `json:"lost_packets"`
	Size       int           `json:"packet_bytes"`
	// Fragments of Size in one packet with one answer, 0 for unfragmented packets.
	Fragments int `json:"fragments,omitempty"`
	// Train is the train that gave the capacity.
	Train Train `json:"-"`
}

// path sends trains; the real one is a Prober.
type path interface {
	train(ctx context.Context, p plan) (Train, error)
	sleep(ctx context.Context, d time.Duration) error
	now() time.Time
}

// Measure finds the capacity of the path to the prober's host, and the part of it that other traffic leaves. The
// prober's timeout should be some seconds, because a slow path's queue is long. After an error the result has
// the cost of the measurement. ErrDropped says that no rate of the path can be measured.
func Measure(ctx context.Context, p *Prober, o Options) (Result, error) {
	if o.Share == 0 {
		o.Share = DefaultShare
	}
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	if o.Share < 0.01 || o.Share > 1 {
		return Result{}, fmt.Errorf("share %g of the path: write 0.01 to 1", o.Share)
	}
	largest, err := p.Largest()
	if err != nil {
		return Result{}, err
	}
	if o.Size == 0 {
		o.Size = min(1500, largest)
	}
	if o.Size < p.MinSize() || o.Size > largest {
		return Result{}, fmt.Errorf("packets of %d bytes: write %d to %d", o.Size, p.MinSize(), largest)
	}
	m := &measurement{path: p, o: o, result: Result{Kind: p.Kind()}}
	if o.Size == largest {
		if m.divided, err = p.divided(fragments); err != nil {
			return Result{}, err
		}
	}
	m.tell("reaching", 0)
	first, err := p.Ping(ctx)
	if err != nil {
		return Result{}, err
	}
	m.quiet = 2 * first.RoundTrip()
	err = m.run(ctx)
	return m.result, err
}

type measurement struct {
	path   path
	o      Options
	result Result
	begin  time.Time
	base   map[int]int64 // least delay of a packet, by size, ns
	// tail is the tail that gave the capacity, before the correction for other traffic.
	tail tail
	// filtered packets were lost because fragments do not pass.
	filtered int
	// divided is the size of a packet in fragments, 0 if fragments are not possible.
	divided int
	// quiet is a time without an answer after the whole train is sent. After it the missing packets count as lost.
	quiet time.Duration
}

func (m *measurement) tell(step string, rate float64) {
	if m.o.Progress != nil {
		m.o.Progress(Progress{Step: step, Trains: m.result.Trains, SentBytes: m.result.SentBytes, BytesPerSec: rate})
	}
}

var errSpent = errors.New("spent")

// send sends a train, if the bounds of time and bytes allow it.
func (m *measurement) send(ctx context.Context, p plan) (Train, error) {
	bytes := uint64((p.first + p.packets) * p.size)
	if m.result.Trains > 0 && (m.path.now().Sub(m.begin) > m.o.Duration || m.result.SentBytes+bytes > m.o.Bytes) {
		return Train{}, errSpent
	}
	p.quiet, p.fragments = m.quiet, m.result.Fragments
	t, err := m.path.train(ctx, p)
	if err != nil {
		return Train{}, err
	}
	if d, ok := t.leastDelay(); ok {
		if known, is := m.base[p.size]; !is || d < known {
			m.base[p.size] = d
		}
	}
	m.result.Trains++
	m.result.SentBytes += bytes
	for _, r := range t.Replies {
		if r.Lost {
			m.result.Lost++
		} else if m.result.RoundTrip == 0 || r.RoundTrip() < m.result.RoundTrip {
			m.result.RoundTrip = r.RoundTrip()
		}
	}
	return t, nil
}

func (m *measurement) run(ctx context.Context) error {
	m.begin, m.base, m.quiet = m.path.now(), map[int]int64{}, max(3*time.Second, m.quiet)
	m.result.Size = m.o.Size
	err := m.capacity(ctx)
	if err == nil && m.divided != 0 && m.slow() {
		err = m.faster(ctx)
	}
	if err == nil && !m.result.Capacity.AtLeast {
		err = m.available(ctx)
	}
	if errors.Is(err, errSpent) {
		err = nil
	}
	// With other traffic, the arrival rate of a train that was hardly faster also depends on the others' part.
	if m.tail.sentBytesPerSec < 1.5*m.tail.bytesPerSec && m.result.Available.BytesPerSec < 0.9*m.result.Capacity.BytesPerSec {
		m.result.Capacity.AtLeast = true
	}
	m.result.Took = m.path.now().Sub(m.begin)
	if err == nil && m.result.Capacity.BytesPerSec == 0 {
		return fmt.Errorf("of %d probe packets %d were lost, too many to tell a rate: %w", int(m.result.SentBytes)/m.o.Size, m.result.Lost, ErrSilent)
	}
	if m.result.Capacity.AtLeast || m.result.Available.BytesPerSec == 0 && m.result.Available.PlusMinus == 0 {
		m.result.Available = Figure{BytesPerSec: 0, AtLeast: true}
	}
	return err
}

// slow reports whether the machine does not send trains much faster than the path carries.
func (m *measurement) slow() bool {
	return m.result.Capacity.AtLeast || m.tail.sentBytesPerSec < 2*m.tail.bytesPerSec
}

// faster tries packets in fragments, where single packets were not sent faster than the path carries. A machine sends
// more bytes in the same time in this way. Where fragments do not pass, faster restores the former state.
func (m *measurement) faster(ctx context.Context) error {
	before, tail, size := m.result, m.tail, m.o.Size
	m.o.Size, m.result.Fragments = m.divided, fragments
	m.result.Capacity = Figure{}
	err := m.capacity(ctx)
	if errors.Is(err, ErrDropped) {
		err = nil
	}
	if now := m.result.Capacity; now.BytesPerSec == 0 || now.AtLeast && (!before.Capacity.AtLeast || now.BytesPerSec < before.Capacity.BytesPerSec) {
		m.tail, m.filtered = tail, m.result.Lost-before.Lost
		m.o.Size, m.result.Fragments = size, 0
		m.result.Capacity, m.result.BurstBytes, m.result.Train = before.Capacity, before.BurstBytes, before.Train
	}
	return err
}

// longestTrain returns the length of the longest train in packets.
func (m *measurement) longestTrain() int {
	return longestTrain / max(1, m.result.Fragments)
}

// enough reports whether a tail gives a rate. It needs some packets for the slope, and a duration beyond the delays
// that timers and interrupts cause to single packets.
func (t tail) enough() bool {
	span := time.Duration(t.spanNS)
	return t.queued && (t.packets >= 6 && span >= 200*time.Millisecond || t.packets >= 12 && span >= 8*time.Millisecond)
}

// capacity sends trains back to back, each twice as long as the one before. It stops when the end of a train
// has waited in a queue for long enough. It then sends some more trains of that length.
func (m *measurement) capacity(ctx context.Context) error {
	m.tail = tail{}
	n := firstTrain
	for {
		t, err := m.send(ctx, plan{packets: n, size: m.o.Size})
		if err != nil {
			return err
		}
		last := t.tail()
		found := last.enough()
		// The arrivals of a train with losses may only be the burst of a token bucket.
		if rate := t.arrived(); found || rate > 0 && t.Lost() == 0 {
			m.result.Train = t
			m.result.Capacity = Figure{BytesPerSec: rate, AtLeast: true}
		}
		if found {
			m.tail = last
			m.result.Capacity = Figure{BytesPerSec: last.bytesPerSec, PlusMinus: last.spread}
			m.result.BurstBytes = last.free
		}
		m.tell("capacity", m.result.Capacity.BytesPerSec)
		if !found && t.Lost() > 0.3 {
			return m.shallow(ctx, t)
		}
		if found || n >= m.longestTrain() {
			break
		}
		n *= 2
	}
	if !m.tail.queued {
		return nil
	}
	m.quiet = max(500*time.Millisecond, 3*m.result.RoundTrip, 8*m.serviceTime(m.o.Size))
	return m.again(ctx, n)
}

// again repeats the last train where that is cheap, and takes the median. A bucket that has
// refilled meanwhile needs longer trains than at the first time.
func (m *measurement) again(ctx context.Context, n int) error {
	const most, tries = 5, 7
	first := m.tail
	rates, tails := []float64{first.bytesPerSec}, []tail{first}
	for attempts := 0; attempts < tries && len(rates) < most && time.Duration(first.spanNS) < 200*time.Millisecond; attempts++ {
		if err := m.pause(ctx, n*m.o.Size); err != nil {
			return err
		}
		t, err := m.send(ctx, plan{packets: n, size: m.o.Size})
		if err != nil {
			return err
		}
		last := t.tail()
		if !last.enough() {
			if t.Lost() < 0.1 {
				n = min(2*n, m.longestTrain(), m.longest())
			}
			continue
		}
		rates, tails = append(rates, last.bytesPerSec), append(tails, last)
		m.result.BurstBytes = max(m.result.BurstBytes, last.free)
		c, distances := around(rates)
		slices.SortFunc(tails, func(a, b tail) int { return cmp.Compare(a.bytesPerSec, b.bytesPerSec) })
		m.tail = tails[len(tails)/2]
		m.result.Capacity = Figure{BytesPerSec: c, PlusMinus: max(median(distances), slices.Max(distances)/float64(len(rates)))}
		m.tell("capacity", c)
		if len(rates) >= 3 && m.result.Capacity.PlusMinus < 0.005*c {
			break
		}
	}
	return nil
}

// longest returns the length in packets of a train that empties the bucket and then fills a queue of a third of a
// second.
func (m *measurement) longest() int {
	return (2*m.result.BurstBytes+int(m.result.Capacity.BytesPerSec/3))/m.o.Size + firstTrain
}

func (m *measurement) serviceTime(size int) time.Duration {
	return time.Duration(float64(size) / m.result.Capacity.BytesPerSec * 1e9)
}

// pause waits after these bytes were sent, so that probing keeps to the share.
func (m *measurement) pause(ctx context.Context, bytes int) error {
	d := time.Duration(float64(bytes) / (m.o.Share * m.result.Capacity.BytesPerSec) * 1e9)
	sent := time.Duration(float64(bytes) / m.result.Capacity.BytesPerSec * 1e9)
	return m.path.sleep(ctx, min(max(d-sent, 20*time.Millisecond), m.o.Duration))
}
