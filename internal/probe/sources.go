package probe

import (
	"net/netip"
	"time"
)

// These constants bound a reflector's answers to one source, and to all senders that have not shown that they
// receive. A source is an IPv4 address or an IPv6 network of 64 bits. A train of 1500 bytes at 1 Gbit/s is 83,000
// packets/s.
const (
	hellosPerSec    = 5
	hellosBurst     = 10
	allHellosPerSec = 1000
	probesPerSec    = 200_000
	probesBurst     = 2 * MaxTrain
	mostSources     = 4096
)

// bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
}

func (b *bucket) take(now time.Time, perSec, most float64) bool {
	if b.at.IsZero() {
		b.tokens = most
	} else if d := now.Sub(b.at).Seconds(); d > 0 {
		b.tokens = min(most, b.tokens+d*perSec)
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

type sourceState struct{ hellos, probes bucket }

// sources bounds the answers to each source. Many forged addresses fill the table, which is then
// cleared. The bound on all hellos still holds.
type sources struct {
	all   bucket
	known map[netip.Prefix]*sourceState
}

func newSources() sources { return sources{known: map[netip.Prefix]*sourceState{}} }

func (s *sources) of(a netip.Addr) *sourceState {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	network, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return &sourceState{}
	}
	state := s.known[network]
	if state == nil {
		if len(s.known) >= mostSources {
			clear(s.known)
		}
		state = &sourceState{}
		s.known[network] = state
	}
	return state
}

func (s *sources) hello(a netip.Addr, now time.Time) bool {
	return s.of(a).hellos.take(now, hellosPerSec, hellosBurst) && s.all.take(now, allHellosPerSec, allHellosPerSec)
}

func (s *sources) probe(a netip.Addr, now time.Time) bool {
	return s.of(a).probes.take(now, probesPerSec, probesBurst)
}
