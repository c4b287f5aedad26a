// Package hostpathtest has paths for tests: their hosts answer at once, as over an empty path.
package hostpathtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
)

// RoundTrip is the round trip of each path.
const RoundTrip = 10 * time.Millisecond

// Paths opens paths, and counts those that are open.
type Paths struct {
	open atomic.Int32

	mu       sync.Mutex // guards the fields below
	measured uint64
	isSilent bool
	failing  error
}

// New returns paths that are measured to carry that many bytes/s.
func New(measured uint64) *Paths { return &Paths{measured: measured} }

// Silence has the hosts answer no probe, or answer again.
func (p *Paths) Silence(isSilent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isSilent = isSilent
}

// FailMeasuring has measurements fail; nil = they succeed again.
func (p *Paths) FailMeasuring(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = err
}

// Count returns how many paths are open.
func (p *Paths) Count() int { return int(p.open.Load()) }

// Open opens a path.
func (p *Paths) Open(context.Context, hostpath.Config) (hostpath.Path, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isSilent {
		return nil, &api.Error{Code: api.CodeNotFound, Message: "silent"}
	}
	p.open.Add(1)
	return &path{open: &p.open, measured: p.measured, failing: p.failing}, nil
}

// path answers at once, as an empty path does.
type path struct {
	open     *atomic.Int32
	measured uint64
	failing  error
	closed   sync.Once
}

func (p *path) MinSize() int             { return 40 }
func (p *path) MaxSize() int             { return 1500 }
func (p *path) RoundTrip() time.Duration { return 0 }
func (p *path) Kind() string             { return "fake" }
func (p *path) SentBytes() uint64        { return 1234 }

func (p *path) Measure(context.Context) (hostpath.Measured, error) {
	return hostpath.Measured{BytesPerSec: p.measured, Full: p.measured == 0}, p.failing
}

func (p *path) Send(_ int, tell func(adapt.Answer)) error {
	tell(adapt.Answer{RoundTrip: RoundTrip, Received: time.Now()})
	return nil
}

func (p *path) Close() error {
	p.closed.Do(func() { p.open.Add(-1) })
	return nil
}
