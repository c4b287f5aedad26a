package testbed

import (
	"sort"
	"sync"
	"time"
)

// Conn is a connection as its receiver sees it.
type Conn struct {
	ID     int    `json:"id"`     // index into Sample.Conns
	Port   uint16 `json:"port"`   // the receiver's port, at which the listener accepted it
	Remote string `json:"remote"` // the sender's address:port
	Opened Instant
}

// Sample holds the bytes of TCP payload that had arrived at a receiver by an instant, read or not.
type Sample struct {
	T     Instant           `json:"t"`
	Conns []uint64          `json:"conns"` // by Conn.ID
	Ports map[uint16]uint64 `json:"ports"` // per listening port, including connections that are not in Conns
}

// Series holds the counts of a receiver over time. It is safe for concurrent use and may be read while it grows.
type Series struct {
	mu      sync.Mutex
	conns   []Conn
	samples []Sample
}

// AddConn adds a connection; samples count it at its ID.
func (s *Series) AddConn(c Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
}

// AddSample adds the bytes that had arrived by a later instant than that of the sample before.
func (s *Series) AddSample(x Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, x)
}

// Samples returns the samples so far; the caller must not change the result.
func (s *Series) Samples() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples[:len(s.samples):len(s.samples)]
}

// Conns returns the connections of a listening port (0 = all) in the order in
// which they were accepted.
func (s *Series) Conns(port uint16) []Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Conn
	for _, c := range s.conns {
		if port == 0 || c.Port == port {
			out = append(out, c)
		}
	}
	return out
}

// Bytes returns the payload that had arrived at a listening port (0 = all) by an instant, interpolated between
// samples.
func (s *Series) Bytes(port uint16, at Instant) float64 {
	return interpolate(s.Samples(), at, func(x Sample) uint64 {
		if port != 0 {
			return x.Ports[port]
		}
		var sum uint64
		for _, b := range x.Ports {
			sum += b
		}
		return sum
	})
}

// Goodput returns payload bytes per second to a port (0 = all) between two
// instants.
func (s *Series) Goodput(port uint16, from, to Instant) float64 {
	if to <= from {
		return 0
	}
	return (s.Bytes(port, to) - s.Bytes(port, from)) / to.Sub(from).Seconds()
}

// MostGoodput returns payload bytes per second of the fullest time of at least
// that length that begins and ends with a sample between two instants; 0 = none.
func (s *Series) MostGoodput(from, to Instant, length time.Duration) float64 {
	most, begin := 0.0, 0
	samples := s.Samples()
	for i, x := range samples {
		if x.T > to {
			break
		}
		for begin < i && (samples[begin].T < from || begin+1 < i && x.T.Sub(samples[begin+1].T) >= length) {
			begin++
		}
		if b := samples[begin].T; b >= from && x.T.Sub(b) >= length {
			most = max(most, s.Goodput(0, b, x.T))
		}
	}
	return most
}

// ConnGoodputs returns payload bytes per second of each connection to a port
// (0 = all) between two instants, in the order of Conns.
func (s *Series) ConnGoodputs(port uint16, from, to Instant) []float64 {
	var out []float64
	samples := s.Samples()
	for _, c := range s.Conns(port) {
		count := func(x Sample) uint64 {
			if c.ID < len(x.Conns) {
				return x.Conns[c.ID]
			}
			return 0
		}
		rate := 0.0
		if to > from {
			rate = (interpolate(samples, to, count) - interpolate(samples, from, count)) / to.Sub(from).Seconds()
		}
		out = append(out, rate)
	}
	return out
}

// FirstByte returns the instant of the last sample without payload for the port (0 = all), and false if no byte
// arrived. The first byte arrived at most one interval later.
func (s *Series) FirstByte(port uint16) (Instant, bool) {
	var before Instant
	for _, x := range s.Samples() {
		var n uint64
		for p, b := range x.Ports {
			if port == 0 || p == port {
				n += b
			}
		}
		if n > 0 {
			if before == 0 {
				before = x.T
			}
			return before, true
		}
		before = x.T
	}
	return 0, false
}

// LongestGap returns the longest time without a sample between two instants. A much longer gap than the receiver's
// interval means that the machine had no time for it. The figures of that time then prove little.
func (s *Series) LongestGap(from, to Instant) time.Duration {
	var longest time.Duration
	last := from
	for _, x := range s.Samples() {
		if x.T <= from {
			continue
		}
		if x.T >= to {
			break
		}
		longest = max(longest, x.T.Sub(last))
		last = x.T
	}
	return max(longest, to.Sub(last))
}

// interpolate reads a counter at an instant; before the first sample it is 0,
// after the last it stays.
func interpolate(samples []Sample, at Instant, count func(Sample) uint64) float64 {
	i := sort.Search(len(samples), func(i int) bool { return samples[i].T >= at })
	switch {
	case i == len(samples) && i == 0:
		return 0
	case i == len(samples):
		return float64(count(samples[i-1]))
	case i == 0:
		if samples[0].T == at {
			return float64(count(samples[0]))
		}
		return 0
	}
	a, b := samples[i-1], samples[i]
	ya, yb := float64(count(a)), float64(count(b))
	return ya + (yb-ya)*float64(at-a.T)/float64(b.T-a.T)
}
