package inetd

import (
	"net"
	"net/netip"
	"time"
)

// clients counts sessions by who asks for them: an address, or with IPv6 the 64 bits that a site has.
type clients struct {
	of    map[netip.Prefix]*client
	swept time.Time
}

type client struct {
	children, inMinute int
	minute             time.Time
}

// clientOf is who that is; the zero Prefix if it has no address.
func clientOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	address := at.Addr().Unmap().WithZone("")
	p, _ := address.Prefix(min(address.BitLen(), 64)) // never too long
	return p
}

// enter counts a session, and says whether there may be one more, of so many in a minute and at
// a time; 0 = any number. Who is refused has entered nothing, but for the minute.
func (c *clients) enter(who netip.Prefix, perMinute, children int, now time.Time) bool {
	if c.of == nil {
		c.of = map[netip.Prefix]*client{}
	}
	if now.Sub(c.swept) >= time.Minute {
		c.swept = now
		for k, v := range c.of {
			if v.children == 0 && now.Sub(v.minute) >= time.Minute {
				delete(c.of, k)
			}
		}
	}
	v := c.of[who]
	if v == nil {
		v = &client{}
		c.of[who] = v
	}
	if now.Sub(v.minute) >= time.Minute {
		v.minute, v.inMinute = now, 0
	}
	v.inMinute++
	if perMinute != 0 && v.inMinute > perMinute || children != 0 && v.children >= children {
		return false
	}
	v.children++
	return true
}

// leave is for each enter that said yes.
func (c *clients) leave(who netip.Prefix) {
	if v := c.of[who]; v != nil {
		v.children--
	}
}
