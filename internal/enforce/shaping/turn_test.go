package shaping

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/netnamespace"
)

// TestDevicesThatAreUpAreEnteredInTurns checks that one look enters only some of many devices that are up. Commands get
// in between until all are entered.
func TestDevicesThatAreUpAreEnteredInTurns(t *testing.T) {
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	k.turnUp = 0 // one device in each look
	const devices = 6
	for i := range devices / 2 {
		addPairUp(t, fmt.Sprintf("turn%d", i))
	}
	home, err := netnamespace.Of("thread-self")
	must(t, err)
	must(t, k.SetNode(sending(200e3)))
	received := own(1e6)
	received.ID = 8
	for _, c := range []struct {
		what    string
		begin   func() error
		entered func() int
	}{
		{"what is sent", func() error { return k.startSending(&bpf.QueueWanted{Netns: home}) }, func() int { return len(k.sendingAt(home).attached) }},
		{"what comes in", func() error { return k.setReceiving(received) }, func() int { return len(k.receiving(home).attached) }},
	} {
		k.mu.Lock() // the look at the rest waits for this lock
		err := c.begin()
		entered := c.entered()
		k.mu.Unlock()
		must(t, err)
		require.Equal(t, 1, entered, c.what)
		soon(t, "all are entered", 5*time.Second, func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return c.entered() == devices
		})
	}
}

// TestDevicesAreLeftInTurns checks that a queue that nobody uses leaves its devices in turns, too. It enters them again
// if a socket wants the queue meanwhile, also after an attempt that failed.
func TestDevicesAreLeftInTurns(t *testing.T) {
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	const many = 6
	for i := range many / 2 {
		addPairUp(t, fmt.Sprintf("turn%d", i))
	}
	free := devices(t)
	home, err := netnamespace.Of("thread-self")
	must(t, err)
	must(t, k.SetNode(sending(200e3)))
	entered := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.sendingAt(home).attached)
	}
	release, err := k.HoldQueue(0)
	must(t, err)
	soon(t, "all are entered", 5*time.Second, func() bool { return entered() == many })
	release()
	// turn leaves one device of a queue that was idle for long. With again, a socket then asks for the queue.
	turn := func(again bool) (left int, err error) {
		k.mu.Lock() // the look at the rest waits for this lock
		defer k.mu.Unlock()
		k.send.turnUp = 0
		p := k.sendingAt(home)
		p.entry.UsedNs = bpf.NowNS() - uint64(3*sendIdle)
		err = errors.Join(k.send.obj.Sender.Put(p.NS, &p.entry), p.look(k.holds))
		left = many - len(p.attached)
		if again {
			wanted, places := &bpf.QueueWanted{Netns: home}, k.send.obj.Sender
			k.send.obj.Sender = closedMap(t, places)
			failed := k.startSending(wanted)
			k.send.obj.Sender = places
			require.Error(t, failed)
			err = errors.Join(err, k.startSending(wanted))
		}
		return left, err
	}
	left, err := turn(true)
	must(t, err)
	require.Equal(t, 1, left)
	soon(t, "all are entered again", 5*time.Second, func() bool { return entered() == many })
	left, err = turn(false)
	must(t, err)
	require.Equal(t, 1, left)
	soon(t, "all are left", 5*time.Second, func() bool { return slices.Equal(devices(t), free) })
}

// TestNamespaceWithoutProcessesIsLeftInTurns checks that the devices of a network namespace are left in turns, too, if
// no process lives there any more.
func TestNamespaceWithoutProcessesIsLeftInTurns(t *testing.T) {
	far := elsewhere(t)
	for i := range 3 {
		addPair(t, far.Netlink(), fmt.Sprintf("turn%d", i))
	}
	free := devicesIn(t, far)
	end := lived(t, far)
	var ns uint32
	must(t, far.Do(func() (err error) {
		ns, err = netnamespace.Of("thread-self")
		return err
	}))
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	must(t, k.SetNode(sending(200e3)))
	release, err := k.HoldQueue(ns)
	must(t, err)
	release()
	end()
	soon(t, "no process lives there", 5*time.Second, func() bool { return netnamespace.PathOf(ns) == "" })
	k.mu.Lock() // the look at the rest waits for this lock
	k.send.turnUp = 0
	p := k.sendingAt(ns)
	many := len(p.attached)
	p.entry.UsedNs = bpf.NowNS() - uint64(2*sendLeft)
	err = errors.Join(k.send.obj.Sender.Put(ns, &p.entry), p.look(k.holds))
	left := many - len(p.attached)
	k.mu.Unlock()
	must(t, err)
	require.Greater(t, many, 2)
	require.Equal(t, 1, left)
	soon(t, "all are left", 5*time.Second, func() bool { return slices.Equal(devicesIn(t, far), free) })
}

// closedMap returns a map that cannot be written.
func closedMap(t *testing.T, m *ebpf.Map) *ebpf.Map {
	t.Helper()
	closed, err := m.Clone()
	must(t, err)
	must(t, closed.Close())
	return closed
}

// addPairUp makes two devices that are up, for the test.
func addPairUp(t *testing.T, name string) {
	t.Helper()
	nl, err := netlink.NewHandle()
	must(t, err)
	t.Cleanup(nl.Close)
	addPair(t, nl, name)
	t.Cleanup(func() {
		link, err := nl.LinkByName(name)
		must(t, err)
		must(t, nl.LinkDel(link))
	})
}

// addPair makes two devices that are up.
func addPair(t *testing.T, nl *netlink.Handle, name string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	must(t, nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}))
	for _, end := range []string{name, name + "p"} {
		link, err := nl.LinkByName(end)
		must(t, err)
		must(t, nl.LinkSetUp(link))
	}
}
