package inetd

import (
	"net"
	"net/netip"
	"time"
)

// clients counts sessions by client. A client is an IPv4 address, or the first 64 bits of an IPv6 address, which name a
// site.
type clients struct {
	of    map[netip.Prefix]*client
	swept time.Time
}

type client struct {
	children, inMinute int
	minute             time.Time
}

// clientOf returns the client with an address; the zero Prefix if a is no address with a port.
func clientOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	address := at.Addr().Unmap().WithZone("")
	p, _ := address.Prefix(min(address.BitLen(), 64)) // never too long
	return p
}

// enter counts a session, and reports whether the client may have it. The bounds are on the sessions that a client
// begins in a minute and has at a time; 0 = any number. A session that is refused counts in the minute alone.
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

// leave ends a session. The caller calls it once for each enter that returned true.
func (c *clients) leave(who netip.Prefix) {
	if v := c.of[who]; v != nil {
		v.children--
	}
}
