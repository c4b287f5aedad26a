package daemon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/source/destinations"
	"github.com/netnice/netnice/internal/source/reservations"
)

// changesOfWhole is the number of changes that each daemon of TestIncrementsEqualTheWhole makes.
const changesOfWhole = 100

// wholeOf computes what the kernel should hold all at once, from the records of the state file and what nodes share. The
// caller holds d.mu.
func wholeOf(d *Daemon) (map[uint32]enforce.NodeSpec, enforce.Destinations) {
	var kernel assigned
	w := &Daemon{desiredState: desiredState{nodes: desired.NewTable[*node](), system: d.system}}
	w.destinations = destinations.New(destinations.Options[*transaction]{
		AssignmentOptions: destinations.AssignmentOptions{Log: d.log, Kernel: &kernel, Names: d.names, Lists: d.lists},
		Host:              destinationHost{w},
	})
	w.reservations = reservations.New(reservations.Options{Host: reservationHost{w}})
	for r := range d.content().Records {
		w.nodes.Put(nodeOf(r))
	}
	for n := range w.nodes.All() {
		if n.scopeID != 0 {
			n.to.scope = w.nodes.Get(n.scopeID)
		}
	}
	specs := map[uint32]enforce.NodeSpec{}
	for n := range w.nodes.All() {
		n.Reserved = w.reservations.Worth(n.Holding().Reservation())
		if !n.res.Pending() {
			specs[n.id] = w.specOf(n)
		}
	}
	w.destinations.Follow()
	return specs, kernel.Destinations
}

// assigned is a kernel side that only has destinations.
type assigned struct{ enforce.Destinations }

// SetDestinations implements destinations.Kernel.
func (k *assigned) SetDestinations(to enforce.Destinations) error {
	k.Destinations = to
	return nil
}

// someWish draws a request for few rates, so that limits are lifted, and stay as they are, too.
func someWish(t *rapid.T, device string) (w api.Wish) {
	rate := func(name string, to **uint64) {
		if n := rapid.Uint64Range(0, 5).Draw(t, name); n > 0 {
			*to = ptr((n - 1) * 1e6)
		}
	}
	rate("up", &w.UpBytesPerSec)
	rate("down", &w.DownBytesPerSec)
	rate("total", &w.TotalBytesPerSec)
	few := rapid.Uint64Range(0, 3).Draw(t, "few")
	switch rapid.IntRange(0, 9).Draw(t, "also") {
	case 1:
		w.Weight = ptr(uint32(few * 50))
	case 2:
		w.MinBytesPerSec = ptr(few * 1e5)
	case 3:
		w.MinDownBytesPerSec = ptr(few * 1e5)
	case 4:
		w.DSCP = ptr(int(few) - 1)
	case 5:
		w.Loopback = ptr(few > 1)
	case 6:
		w.InputMeter = ptr(few > 1)
	case 7:
		w.BurstNS = ptr(few * 1e7)
	case 8:
		w.Reserve = &api.Reservation{Link: device, PeriodNS: 1e7, SliceNS: few * 1e6, Extra: few > 1}
	}
	return w
}

// increments is a daemon without a socket, whose kernel and disk fail at times.
type increments struct {
	*Daemon
	fake     *enforcetest.Kernel
	subjects []string
	device   string
	accepted int // requests
}

func newIncrements(t testing.TB) *increments {
	d := &increments{fake: new(enforcetest.Kernel), subjects: []string{
		"host", "user:4242", "user:4243", "pid:4711", "to:10.0.0.0/8", "to:10.1.0.0/16:443/tcp", "to:any,!10.9.0.0/16@pid:4711",
		"to:192.0.2.0/24@user:4242", "to:any:80/tcp/each", "to:here.example", "to:file:/list", "group:g",
	}}
	list, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 {
			d.device = i.Name
			d.subjects = append(d.subjects, "link:"+i.Name)
			break
		}
	}
	opts := startFuzz(t)
	opts.OpenKernel = d.fake.Open
	opts.LookupNames = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.9")}, nil
	}
	opts.fault = func(string, bool) error { return errors.New("a disk would take most of the time") }
	d.Daemon, err = open(t.Context(), opts)
	require.NoError(t, err)
	return d
}

// request sets or lifts a limit; many requests are refused.
func (d *increments) request(t *rapid.T) {
	by := rapid.SampledFrom([]auth.Actor{root, root, {UID: 4242}}).Draw(t, "by")
	s, err := api.ParseSubject(rapid.SampledFrom(d.subjects).Draw(t, "subject"))
	require.NoError(t, err)
	if rapid.IntRange(0, 4).Draw(t, "lifts") == 1 {
		_, err = d.Remove(context.Background(), by, s, false)
	} else {
		req := api.SetRequest{Subject: s, Wish: someWish(t, d.device)}
		switch {
		case s.ID == "file:/list":
			req.Prefixes = rapid.SampledFrom([][]string{nil, {"198.51.100.0/24"}, {"198.51.100.0/25", "10.0.0.0/9"}}).Draw(t, "prefixes")
		case s.Kind == api.KindGroup && rapid.Bool().Draw(t, "joins"):
			req.Members = []api.Member{{PID: 4711}}
		case rapid.IntRange(0, 3).Draw(t, "for a time") == 1:
			req.ForNS = uint64(time.Hour)
		}
		_, err = d.Set(context.Background(), by, req)
	}
	if err == nil {
		d.accepted++
	}
}

// change makes one change, and repairs what a failure leaves.
func (d *increments) change(t *rapid.T) {
	switch rapid.IntRange(0, 19).Draw(t, "change") {
	default:
		d.request(t)
	case 16:
		_, err := d.SetSystem(context.Background(), root, api.SystemRequest{InputMeter: ptr(rapid.Bool().Draw(t, "input meter"))})
		require.NoError(t, err)
	case 17:
		call := rapid.SampledFrom([]string{"SetNode", "RemoveNode", "SetDestinations", "Join", "Leave"}).Draw(t, "failing")
		d.fake.Fail(call, errRefused)
		d.request(t)
		d.fake.Fail(call, nil)
		d.look(true)
	case 18: // the kernel loses a node, or has one too many; without limits nobody looks
		id := rapid.Uint32Range(1, 12).Draw(t, "node")
		stranger := rapid.Bool().Draw(t, "stranger") // in the place of the lost node
		_, ok := d.fake.Spec(id)
		if ok {
			d.fake.Drop(id)
		}
		if (!ok || stranger) && d.count() > 0 {
			d.fake.Put(enforce.NodeSpec{ID: id, Kind: enforce.KindUser, Subject: 9999, Weight: 100})
		}
		d.look(true)
	case 19:
		d.look(true)
	}
}

// requireEqual compares the kernel with the plan of the whole.
func (d *increments) requireEqual(t *rapid.T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	want, to := wholeOf(d.Daemon)
	have, err := d.fake.Nodes()
	require.NoError(t, err)
	for _, spec := range have {
		if spec != want[spec.ID] {
			t.Fatalf("node %d is %+v, and planned as a whole %+v", spec.ID, spec, want[spec.ID])
		}
	}
	if len(have) != len(want) {
		t.Fatalf("%d nodes, and planned as a whole %d: %v", len(have), len(want), want)
	}
	now := d.fake.Destinations()
	if !slices.Equal(now.Uses, to.Uses) {
		t.Fatalf("destinations hold by %+v, and planned as a whole by %+v", now.Uses, to.Uses)
	}
	if !slices.EqualFunc(now.Prefixes, to.Prefixes, func(a, b enforce.DestinationPrefix) bool { return reflect.DeepEqual(a, b) }) {
		t.Fatalf("prefixes are %+v, and planned as a whole %+v", now.Prefixes, to.Prefixes)
	}
}

// Random changes, which the daemon brings into force one by one, end in the plan of the whole after each of them, also
// if the kernel refuses some, and loses nodes.
func TestIncrementsEqualTheWhole(t *testing.T) {
	outer, accepted := t, 0
	rapid.Check(t, func(t *rapid.T) {
		d := newIncrements(outer)
		defer func() {
			d.stopWatching()
			require.NoError(t, d.kernel.Close())
		}()
		for range changesOfWhole {
			d.change(t)
			d.requireEqual(t)
		}
		accepted += d.accepted
	})
	require.NotZero(t, accepted)
	t.Logf("%d requests were accepted", accepted)
}
