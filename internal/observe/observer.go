package observe

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// Figures is what observing needs from the kernel side; enforce.Kernel has it.
type Figures interface {
	Stats() ([]enforce.NodeStats, error)
	Sockets() ([]enforce.SocketStats, error)
	Stateless() (enforce.StatelessStats, error)
	Unknown() (enforce.UnknownStats, error)
	Look(id uint32) (enforce.NodeStats, []enforce.SocketStats, error)
	Inspect(wanted func(inode uint64, pid uint32) bool) ([]enforce.SocketLook, error)
	Trees(pid int) []uint32
	Queues() ([]enforce.Queue, error)
	Reserved() ([]enforce.SocketReservation, error)
}

// Options are what an Observer needs.
type Options struct {
	Log      *slog.Logger
	Kernel   Figures
	Resolver *identity.Resolver
	// Tick is the time between two calls of Observer.Tick.
	Tick time.Duration
	// CPUShares lists the CPU shares, for a list of all nodes.
	CPUShares func() []api.Power
	// Leaving is the answer to new event readers while the program ends.
	Leaving error
}

// Observer answers questions about the last published snapshot. All methods may be called at the same time. Methods that
// take a snapshot are also for the writer: its snapshot is not published yet.
type Observer struct {
	log       *slog.Logger
	kernel    Figures
	resolver  *identity.Resolver
	tick      time.Duration
	cpuShares func() []api.Power

	current  atomic.Pointer[Snapshot]
	sampler  sampler
	readings atomic.Pointer[readings]
	census   census
	events   hub
	noticed  noticed
	askers   askers
}

// New returns an Observer of a snapshot without nodes.
func New(o Options) *Observer {
	out := &Observer{
		log: o.Log, kernel: o.Kernel, resolver: o.Resolver, tick: o.Tick, cpuShares: o.CPUShares,
		sampler: sampler{kernel: o.Kernel, resolver: o.Resolver}, events: hub{leaving: o.Leaving}, census: census{resolver: o.Resolver},
	}
	out.current.Store(Empty())
	out.readings.Store(new(readings))
	return out
}

// Publish makes a snapshot the present one. The writer calls it before a request that has changed something is
// answered, so that the caller finds the change in the next list.
func (o *Observer) Publish(s *Snapshot) { o.current.Store(s) }

// Snapshot returns the present snapshot.
func (o *Observer) Snapshot() *Snapshot { return o.current.Load() }

// Tick reads the counters for rates, and publishes events about changes that no command makes. The caller calls it at
// each tick, from one goroutine.
func (o *Observer) Tick() error {
	now, err := o.sampler.stats()
	if err != nil {
		return err
	}
	o.readings.Store(&readings{readingOf(now), o.readings.Load()[0]})
	return o.notice(now)
}

// census counts processes by user, at most once a second.
type census struct {
	resolver *identity.Resolver

	mu    sync.Mutex
	at    time.Time
	byUID map[uint32]int
}

// count returns nil if the processes cannot be counted; they are shown as none, and the limits are not affected.
func (c *census) count() map[uint32]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) >= time.Second {
		count, err := c.resolver.Census()
		if err != nil {
			return nil
		}
		c.at, c.byUID = time.Now(), count
	}
	return c.byUID
}
