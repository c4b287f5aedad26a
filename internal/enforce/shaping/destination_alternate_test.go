package shaping

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// TestDestinationsByTurns checks a limit on one port, while one socket sends by turns to that port and to another.
func TestDestinationsByTurns(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDestinations")
	far := elsewhere(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	const limit = 1e6
	to, came := sink(t, far, theirs4)
	other, passed := sink(t, far, theirs4)
	c, err := net.ListenPacket("udp", net.JoinHostPort(ours4, "0"))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	const rule = 3 | enforce.RuleEverybody
	must(t, k.SetNode(toward(8, enforce.Up, limit)))
	at := uint16(to.Port)
	must(t, k.SetDestinations(enforce.Destinations{
		Prefixes: []enforce.DestinationPrefix{named(rule, "0.0.0.0/0", at, at)},
		Uses:     []enforce.DestinationUse{{Rule: rule, Node: 8}},
	}))
	go func() {
		for i, buf, begin := 0, make([]byte, 1000), time.Now(); ; i++ {
			time.Sleep(time.Duration(float64(i)*1000/3e6*1e9) - time.Since(begin))
			for _, a := range []net.Addr{to, other} {
				if _, err := c.WriteTo(buf, a); errors.Is(err, net.ErrClosed) {
					return
				}
			}
		}
	}()
	settled(t, k)
	time.Sleep(time.Second)
	begin, held, free := time.Now(), came.Load(), passed.Load()
	time.Sleep(2 * time.Second)
	span := time.Since(begin).Seconds()
	held, free = came.Load()-held, passed.Load()-free
	t.Logf("%.3f of the limit, to the other %.3f", float64(held)/span/limit, float64(free)/span/limit)
	if got := float64(held) / span; got > limit*1.05 || got < limit/2 {
		t.Errorf("%.0f bytes/s, want %.0f", got, limit)
	}
}
