package netdevice

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

func TestTurn(t *testing.T) {
	up := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: 1, Flags: net.FlagUp}}
	down := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: 2}}
	late := time.Now().Add(-2 * turnTime)

	first := Turn{began: time.Now(), Up: TurnTimeUp, UpOnly: true}
	require.False(t, first.leaves(up, false))
	require.False(t, first.leaves(down, true), "an earlier process had entered it")
	require.False(t, first.left)
	require.True(t, first.leaves(down, false))
	require.True(t, first.left)

	next := Turn{began: time.Now(), Up: TurnTimeUp}
	for range 3 {
		require.False(t, next.leaves(down, false))
	}
	next.began = late
	require.True(t, next.leaves(down, false))
	require.False(t, next.leaves(up, false), "what is up waits for less")
	next.began = time.Now().Add(-2 * TurnTimeUp)
	require.True(t, next.leaves(up, false), "but it waits")
	require.False(t, next.leaves(up, true))
	require.True(t, next.left)

	slow := Turn{began: late}
	require.False(t, slow.leaves(down, false), "each look enters one, however slow the machine is")
	require.True(t, slow.leaves(down, false))
}

func TestRestIsLookedAtOnce(t *testing.T) {
	var r Rest
	var lock sync.Mutex
	looked := make(chan bool, 8)
	again := func() {
		lock.Lock()
		defer lock.Unlock()
		looked <- true
	}
	r.waits.Store(true)
	r.Look(again) // one call waits already
	require.Empty(t, looked)
	r.waits.Store(false)
	lock.Lock()
	r.Look(again)
	lock.Unlock()
	<-looked
	r.Look(again) // a look at what the previous look left
	<-looked
}

func TestPauseAfterALook(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0:                      watchPause,
		watchPause / 10:        watchPause,
		200 * time.Millisecond: 400 * time.Millisecond,
		20 * time.Second:       watchMost,
	} {
		require.Equal(t, want, pauseAfter(took), took)
	}
}
