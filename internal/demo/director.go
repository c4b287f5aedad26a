package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

const (
	tick    = 100 * time.Millisecond // interval of the chart
	counted = 25 * time.Millisecond  // between samples of the receiver
	late    = 60 * time.Millisecond  // time until a sample has surely arrived
	// ipFactor is IP bytes per byte of payload in full segments over IPv4 with timestamps. Figures use the bytes
	// that the connections really sent.
	ipFactor = 1500. / 1448
)

// director plays the scenes and keeps the state that pictures show.
type director struct {
	netnice netnice
	stage   *stage
	pace    float64 // factor of the scenes' lengths; tests use a small one

	mu    sync.Mutex // guards the fields below
	show  func(State)
	state State
	begin testbed.Instant
	parts func(from, to testbed.Instant) []Part
}

func newDirector(n netnice) *director { return &director{netnice: n, pace: 1} }

// direct plays the whole demo, calls show for each new state, and cleans up. d.state is complete afterwards.
func (d *director) direct(ctx context.Context, show func(State)) (err error) {
	d.show = show
	d.stage = &stage{netnice: d.netnice}
	defer func() { err = errors.Join(err, d.leave(ctx, err == nil)) }()
	if err := d.stage.setUp(ctx); err != nil {
		return err
	}
	scenes := d.script()
	d.state.Planned, d.state.Tick = time.Second, tick // a second for the time between the scenes
	for i, s := range scenes {
		scenes[i].length = time.Duration(float64(s.length) * d.pace)
		d.state.Scenes = append(d.state.Scenes, Scene{Title: s.title})
		d.state.Planned += scenes[i].length
	}
	d.begin = testbed.Now()
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching) })
	defer watch.Wait()
	defer stop()
	for i, s := range scenes {
		d.change(func(st *State) {
			st.Scene, st.Parts = i, nil
			st.Scenes = slices.Clone(st.Scenes)
			st.Scenes[i].Start = st.Elapsed
			d.parts = nil
		})
		if err := s.play(ctx, s.length); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	return nil
}

// leave cleans up and, if the demo was played to its end, reports whether anything stayed.
func (d *director) leave(ctx context.Context, played bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if len(d.state.Scenes) > 0 {
		d.change(func(st *State) { st.Leaving = true })
	}
	gone, err := d.stage.close(ctx)
	if !played || err != nil {
		return err
	}
	d.change(func(st *State) {
		st.Done = true
		f := Figure{
			Step: "afterwards", What: "daemon", Text: "gone", Value: 1, Unit: "ratio",
			Wanted: "gone", Verdict: Good,
		}
		switch {
		case d.stage.daemonBefore:
			f.Text, f.Wanted = "runs", "runs, as before"
		case !gone:
			f.Text, f.Value, f.Verdict = "still there", 0, Off
		}
		st.Figures = append(slices.Clone(st.Figures), f)
	})
	return nil
}

// change changes the state and shows it.
func (d *director) change(how func(*State)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begin != 0 {
		d.state.Elapsed = testbed.Now().Sub(d.begin)
	}
	how(&d.state)
	d.show(d.state)
}

// figure adds a figure of the present scene.
func (d *director) figure(f Figure) {
	d.change(func(st *State) {
		f.Step = st.Scenes[st.Scene].Title
		st.Figures = append(slices.Clone(st.Figures), f)
	})
}

// draw sets the connections or programs that are shown as contributing.
func (d *director) draw(parts func(from, to testbed.Instant) []Part) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts = parts
}

// command runs a netnice command visibly and returns its start and end.
func (d *director) command(ctx context.Context, limit float64, args ...string) (from, to testbed.Instant, err error) {
	d.change(func(st *State) {
		st.Scenes = slices.Clone(st.Scenes)
		sc := &st.Scenes[st.Scene]
		sc.Commands = append(slices.Clone(sc.Commands), "netnice "+strings.Join(args, " "))
	})
	from = testbed.Now()
	_, err = d.netnice.Output(ctx, args...)
	to = testbed.Now()
	if err == nil {
		d.change(func(st *State) { st.Limit = limit })
	}
	return from, to, err
}

// watch adds the receiver's counts to the chart, tick by tick.
func (d *director) watch(ctx context.Context) {
	t := time.NewTicker(tick / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for d.addTick() {
		}
	}
}

// addTick adds the next tick, if its time has come.
func (d *director) addTick() bool {
	d.mu.Lock()
	from := d.begin.Add(time.Duration(len(d.state.Rates)) * tick)
	parts := d.parts
	d.mu.Unlock()
	to := from.Add(tick)
	if testbed.Now() < to.Add(late) {
		return false
	}
	rate := d.stage.rx.Goodput(0, from, to) * ipFactor
	var now []Part
	if parts != nil {
		now = parts(to.Add(-3*tick), to)
	}
	d.change(func(st *State) {
		st.Rates = append(st.Rates[:len(st.Rates):len(st.Rates)], rate)
		st.Parts = now
	})
	return true
}

// settled returns the instant from which the figures of a change just made may be measured: 0.6 s later.
func (d *director) settled() testbed.Instant {
	return testbed.Now().Add(time.Duration(d.pace * 0.6 * float64(time.Second)))
}
