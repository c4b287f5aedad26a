package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/apiserver"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/pulse"
)

// departure says why the daemon stopped serving.
type departure int

const (
	leftBySignal departure = iota
	leftByDown
	leftIdle
)

// life serves and runs the background loops until there is a reason to leave.
func (d *Daemon) life(ctx context.Context) (departure, error) {
	house, cancel := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	d.rules.Open() // before any loop or request may look at rules
	var ticks pulse.Pulse
	ticking := func(keep func(context.Context, <-chan time.Time)) {
		beat := ticks.Beat()
		keepers.Go(func() { keep(house, beat) })
	}
	ticking(d.keepHouse)
	ticking(d.keepArmed)
	keepers.Go(func() { d.keepRequests(house) })
	keepers.Go(func() { d.cpuShares.Keep(house) })
	ticking(d.adaptation.Keep)
	ticking(d.peers.Keep)
	keepers.Go(func() { d.names.Keep(house) })
	if d.rules.Follows() {
		ticking(d.rules.Keep)
		keepers.Go(func() { d.rules.KeepExecs(house) })
	}
	keepers.Go(func() { ticks.Run(house, d.opts.Tick) })
	defer keepers.Wait()
	defer cancel()
	for {
		why, err := d.serve(ctx)
		// A request that was under way while the socket closed may have set a limit. Then the daemon stays.
		if err != nil || why != leftIdle || d.holds() == 0 {
			return why, err
		}
	}
}

// serve answers requests until there is a reason to stop.
func (d *Daemon) serve(ctx context.Context) (departure, error) {
	at, err := d.endpoint()
	if err != nil {
		return leftBySignal, err
	}
	d.at.Store(at) // keepReachable watches it
	server := apiserver.NewServer(d, d.log)
	server.Handler = auth.Tracked(apiserver.Limited(d.counted(server.Handler), d.countsAs))
	d.observe.BeginEvents()
	server.RegisterOnShutdown(d.observe.EndEvents)
	peers := auth.Options{Group: d.admins.Load, CountsAs: d.countsAs}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(auth.NewListener(at, peers)) }()
	d.tell(sdnotify.SdNotifyReady)
	d.log.Info("netnice is ready", "socket", d.opts.SocketPath, "nodes", d.count(), "on_demand", d.opts.OnDemand)

	var idle <-chan time.Time
	if d.opts.OnDemand {
		tick := time.NewTicker(max(min(d.opts.IdleAfter/5, d.opts.Tick), time.Millisecond))
		defer tick.Stop()
		idle = tick.C
	}
	why := leftBySignal
wait:
	for {
		select {
		case <-ctx.Done():
			break wait
		case <-d.downc:
			why = leftByDown
			break wait
		case <-idle:
			if d.idle() {
				why = leftIdle
				break wait
			}
		case err := <-failed:
			return leftBySignal, errors.Join(fmt.Errorf("serve %s: %w", d.opts.SocketPath, err), at.hide())
		}
	}
	hidden := at.hide()
	d.observe.Tell(observe.Everybody(), api.Event{Type: api.EventDaemonLeaves, PID: d.pid, LimitsStay: why == leftBySignal && !d.opts.OnDemand})
	const patience = 5 * time.Second
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close() // closes connections of callers that do not read their answers
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return why, errors.Join(fmt.Errorf("serve %s: %w", d.opts.SocketPath, err), hidden)
	}
	return why, hidden
}

// counted counts the requests that are under way.
func (d *Daemon) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == apiserver.EventsPath {
			next.ServeHTTP(w, r) // an event listener alone does not keep the daemon running
			return
		}
		d.inflight.Add(1)
		defer func() {
			d.lastBusy.Store(int64(time.Since(d.started)))
			d.inflight.Add(-1)
		}()
		next.ServeHTTP(w, r)
	})
}

// idle reports whether an on-demand daemon may leave.
func (d *Daemon) idle() bool {
	if !d.opts.OnDemand {
		return false
	}
	if d.inflight.Load() > 0 || d.holds() > 0 {
		d.lastBusy.Store(int64(time.Since(d.started)))
		return false
	}
	if !d.hadNodes.Load() && time.Since(d.started) < d.opts.FirstWait {
		return false
	}
	return time.Since(d.started)-time.Duration(d.lastBusy.Load()) >= d.opts.IdleAfter
}
