package shaping

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

	first := turn{began: time.Now(), upOnly: true}
	require.False(t, first.leaves(up, false))
	require.False(t, first.leaves(down, true), "an earlier process had entered it")
	require.False(t, first.left)
	require.True(t, first.leaves(down, false))
	require.True(t, first.left)

	next := turn{began: time.Now()}
	for range 3 {
		require.False(t, next.leaves(down, false))
	}
	next.began = late
	require.True(t, next.leaves(down, false))
	require.False(t, next.leaves(up, false), "what is up does not wait")
	require.True(t, next.left)

	slow := turn{began: late}
	require.False(t, slow.leaves(down, false), "each look enters one, however slow the machine is")
	require.True(t, slow.leaves(down, false))
}

func TestRestIsLookedAtOnce(t *testing.T) {
	var r rest
	var lock sync.Mutex
	looked := make(chan bool, 8)
	again := func() {
		lock.Lock()
		defer lock.Unlock()
		looked <- true
	}
	r.waits.Store(true)
	r.look(again) // one waits already
	require.Empty(t, looked)
	r.waits.Store(false)
	lock.Lock()
	r.look(again)
	lock.Unlock()
	<-looked
	r.look(again) // what it left in its turn
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
