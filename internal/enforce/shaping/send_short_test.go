package shaping

import (
	"os"
	"testing"
)

func TestDiscardsIn(t *testing.T) {
	const v4 = `Ip: Forwarding DefaultTTL InReceives OutRequests OutDiscards OutNoRoutes
Ip: 1 64 1000 900 7 3
Udp: InDatagrams NoPorts
Udp: 5 6
`
	const v6 = "Ip6OutRequests                  \t33\nIp6OutDiscards                  \t4\n"
	for _, c := range []struct {
		v4, v6 string
		want   uint64
	}{{v4, v6, 11}, {v4, "", 7}, {"", v6, 4}, {"Ip: OutDiscards\n", "", 0}} {
		if got := discardsIn(c.v4, c.v6); got != c.want {
			t.Errorf("%d packets could not be sent, want %d, of %q and %q", got, c.want, c.v4, c.v6)
		}
	}
	if _, err := discards(uint32(os.Getpid())); err != nil {
		t.Error(err)
	}
}
