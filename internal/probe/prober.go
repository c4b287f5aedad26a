package probe

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of a prober.
const (
	DefaultTimeout = time.Second
	// MaxSize is the largest probe packet in IP bytes, for any MTU of the device.
	MaxSize = 9000
	// mostWaiting bounds the packets that wait for their answers at a time.
	mostWaiting = 1 << 15
)

// Config holds the destination and the kind of probe packets.
type Config struct {
	To netip.Addr
	// Port of the reflector, for UDP.
	Port uint16
	Kind Kind
	// Namespace is the path of the network namespace to send from, "" for the caller's.
	Namespace string
	// Timeout after which a packet counts as lost, 0 for one second.
	Timeout time.Duration
	// Prepare is called with the socket before anything is sent, if it is not nil.
	Prepare func(fd int) error
}

// Reply is the outcome of a packet.
type Reply struct {
	Seq        uint64 // counts a prober's packets from 0
	Size       int    // IP bytes of the packet
	SentNS     int64  // CLOCK_REALTIME just before the packet was given to the kernel
	ReceivedNS int64  // CLOCK_REALTIME when the kernel received the answer; 0 if lost
	PeerNS     int64  // when a reflector received the packet, by its own clock; 0 if unknown
	Lost       bool   // no answer within the timeout
}

// RoundTrip returns the round trip of an answered packet.
func (r Reply) RoundTrip() time.Duration { return time.Duration(r.ReceivedNS - r.SentNS) }

// Arrived returns the time of arrival: the packet's by the peer's clock where that is known, else the answer's by our
// clock.
func (r Reply) Arrived() int64 {
	if r.PeerNS != 0 {
		return r.PeerNS
	}
	return r.ReceivedNS
}

// Counters of a prober, in packets.
type Counters struct {
	Sent, Answered, Lost uint64
	SentBytes            uint64 // IP bytes
	// Refused packets are received packets that are no expected answer: forged, malformed,
	// duplicated, or later than the timeout.
	Refused uint64
}

// Prober sends probe packets to one host. Its methods may be called from any goroutine.
type Prober struct {
	cfg     Config
	v6      bool
	socket  *socket
	id      uint16
	session reflectPacket // common content of UDP probes
	ended   chan struct{}

	mu       sync.Mutex
	random   *rand.Rand
	waiting  map[uint16]*flight
	order    []*flight // sorted by sending time; answered packets stay until expire reaches them
	next     uint64
	timer    *time.Timer
	counters Counters
	reported error // latest report of the network about the host
	latest   time.Duration
	closed   bool
}

type flight struct {
	reply    Reply
	cookie   uint64
	deadline time.Time
	done     bool
	tell     func(Reply)
}

// Open opens a socket for probe packets; Close ends it. For UDP it first asks the reflector for a
// cookie. Without a reflector (ErrSilent) that takes up to three timeouts, or eight seconds, or
// until ctx ends. The error is ErrDenied where the caller has no permission.
func Open(ctx context.Context, cfg Config) (*Prober, error) {
	cfg.To = cfg.To.Unmap()
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s, err := openSocket(cfg)
	if err != nil {
		return nil, err
	}
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // Read never fails
	p := &Prober{
		cfg: cfg, v6: cfg.To.Is6(), socket: s, ended: make(chan struct{}),
		random: rand.New(rand.NewChaCha8(seed)), waiting: map[uint16]*flight{},
	}
	p.id = uint16(p.random.Uint32())
	if !s.raw {
		p.id = s.local.Port() // the kernel writes the id into requests, and compares it in answers
	}
	if cfg.Kind == UDP {
		if err := p.greet(ctx); err != nil {
			return nil, errors.Join(err, s.file.Close())
		}
	}
	p.timer = time.AfterFunc(time.Hour, p.expire)
	go p.receive()
	return p, nil
}

func (c Config) check() error {
	switch {
	case !c.To.IsValid() || c.To.IsUnspecified() || c.To.IsMulticast():
		return fmt.Errorf("probe %s: no address of one host", c.To)
	case c.Kind != Timestamp && c.Kind != Echo && c.Kind != UDP:
		return fmt.Errorf("probe packets of the kind %q: write %s, %s or %s", c.Kind, Timestamp, Echo, UDP)
	case c.Kind == Timestamp && c.To.Is6():
		return fmt.Errorf("probe %s: IPv6 has no %s, use %s", c.To, Timestamp, Echo)
	case c.Kind == UDP && c.Port == 0:
		return fmt.Errorf("probe %s: the reflector's port is missing", c.To)
	}
	return nil
}

// MinSize returns the size of the smallest packet in IP bytes.
func (p *Prober) MinSize() int { return MinSize(p.cfg.Kind, p.v6) }

// Largest returns the largest known size in IP bytes of a packet that reaches the host unfragmented.
func (p *Prober) Largest() (int, error) {
	mtu, err := p.socket.mtu(p.v6)
	if err != nil {
		return 0, err
	}
	return min(mtu, MaxSize), nil
}

// divided returns the size in IP bytes of a packet that consists of this number of full fragments.
func (p *Prober) divided(fragments int) (size int, err error) {
	largest, err := p.Largest()
	if err != nil {
		return 0, err
	}
	h := fragmentHeaders(p.v6)
	return fragments * (h + (largest-h)&^7), nil
}

// Kind of the packets.
func (p *Prober) Kind() Kind { return p.cfg.Kind }

// Send sends one packet of size IP bytes. Another goroutine calls tell once with the packet's
// outcome, in order of the answers, at the timeout at the latest. It does not call tell if Send fails or the prober is
// closed before. The function tell must not block.
func (p *Prober) Send(size int, tell func(Reply)) (seq uint64, err error) {
	f, packet, err := p.prepare(size, 0, tell)
	if err != nil {
		return 0, err
	}
	return f.reply.Seq, p.launch(f, packet)
}

// launch sends a prepared packet, and notes the time.
func (p *Prober) launch(f *flight, packet []byte) error {
	p.mu.Lock()
	now := time.Now()
	f.deadline, f.reply.SentNS = now.Add(p.cfg.Timeout), now.UnixNano()
	p.mu.Unlock()
	if err := p.socket.send(packet, p.cfg.Timeout); err != nil {
		p.forget(f)
		return p.sendError(f.reply.Size, err)
	}
	return nil
}

func (p *Prober) sendError(size int, err error) error {
	if errors.Is(err, unix.EMSGSIZE) {
		return fmt.Errorf("send a probe packet of %d bytes to %s, more than the way carries: %w", size, p.cfg.To, err)
	}
	return fmt.Errorf("send a probe packet to %s: %w", p.cfg.To, err)
}

// prepare makes a packet and registers it as waiting for its answer. The answer may arrive before the
// call that sends the packet returns.
func (p *Prober) prepare(size, fragments int, tell func(Reply)) (*flight, []byte, error) {
	if size < p.MinSize() || size > MaxSize && fragments == 0 {
		return nil, nil, fmt.Errorf("probe packet of %d bytes: write %d to %d", size, p.MinSize(), MaxSize)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, fs.ErrClosed
	}
	if len(p.waiting) >= mostWaiting {
		return nil, nil, fmt.Errorf("%d probe packets wait for their answers, no more may", len(p.waiting))
	}
	for p.waiting[uint16(p.next)] != nil { // the packet with the same number, 65536 before, still waits
		p.next++
	}
	f := &flight{reply: Reply{Seq: p.next, Size: size}, cookie: p.random.Uint64(), tell: tell}
	packet, err := p.packet(f, fragments)
	if err != nil {
		return nil, nil, err
	}
	p.next++
	p.waiting[uint16(f.reply.Seq)] = f
	if len(p.order) == 0 {
		p.timer.Reset(p.cfg.Timeout)
	}
	p.order = append(p.order, f)
	p.counters.Sent++
	p.counters.SentBytes += uint64(size)
	// A train's packets are prepared together, and launched later.
	f.deadline = time.Now().Add(p.cfg.Timeout)
	return f, packet, nil
}

func (p *Prober) packet(f *flight, fragments int) ([]byte, error) {
	seq, length := uint16(f.reply.Seq), f.reply.Size-headers(p.cfg.Kind, p.v6, fragments)
	switch p.cfg.Kind {
	case Timestamp:
		f.cookie = f.cookie&(nonStandard-1) | nonStandard
		return timestampRequest(length, p.id, seq, f.cookie)
	case Echo:
		return echoRequest(p.v6, length, p.id, seq, f.cookie)
	default:
		packet := make([]byte, length)
		probe := p.session
		probe.nonce, probe.seq = f.cookie, seq
		probe.put(packet)
		return packet, nil
	}
}

func (p *Prober) forget(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.done {
		f.done = true
		delete(p.waiting, uint16(f.reply.Seq))
		p.counters.Sent--
		p.counters.SentBytes -= uint64(f.reply.Size)
	}
}

// Counters returns the counters so far.
func (p *Prober) Counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters
}

// RoundTrip returns the round trip of the latest answer, 0 while there is none.
func (p *Prober) RoundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// Err returns the network's latest report about the host (unreachable, refused), nil if there is none.
func (p *Prober) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reported
}

// Close ends the prober. It does not report packets that still wait. Closing twice is harmless.
func (p *Prober) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.timer.Stop()
	p.mu.Unlock()
	err := p.socket.file.Close()
	<-p.ended
	if err != nil {
		return fmt.Errorf("close the probe socket: %w", err)
	}
	return nil
}

const sizeofTimespec = int(unsafe.Sizeof(unix.Timespec{}))

func timespecNS(b []byte) int64 {
	half := sizeofTimespec / 2
	if half == 8 {
		return int64(binary.NativeEndian.Uint64(b))*1e9 + int64(binary.NativeEndian.Uint64(b[8:]))
	}
	return int64(binary.NativeEndian.Uint32(b))*1e9 + int64(binary.NativeEndian.Uint32(b[4:]))
}
