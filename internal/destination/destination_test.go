package destination

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":                          "10.0.0.0/8",
		"192.0.2.7":                           "192.0.2.7",
		"192.0.2.7/32:443":                    "192.0.2.7:443",
		"2001:db8::/32":                       "2001:db8::/32",
		"[2001:db8::/32]:443":                 "[2001:db8::/32]:443",
		"[2001:db8::1]":                       "2001:db8::1",
		"10.0.0.0/8,[2001:db8::/32]:80-90":    "10.0.0.0/8,[2001:db8::/32]:80-90",
		"0.0.0.0/0,::/0,!10.0.0.0/8/udp":      "any,!10.0.0.0/8/udp",
		"any,!192.168.0.0/16,!10.0.0.0/8/tcp": "any,!10.0.0.0/8,!192.168.0.0/16/tcp",
		":443":                                "any:443",
		"Example.COM.:443":                    "example.com:443",
		"::ffff:10.0.0.0/104":                 "10.0.0.0/8",
		"10.0.0.0/8,10.0.0.0/8":               "10.0.0.0/8",
	} {
		s, under, err := Parse(text)
		require.NoError(t, err, text)
		require.Zero(t, under)
		require.Equal(t, want, s.String(), text)
		again, _, err := Parse(want)
		require.NoError(t, err)
		require.Equal(t, s, again, "what is written is read as the same")
	}
	s, under, err := Parse("any:53/udp@cgroup:/user@1000.service")
	require.NoError(t, err)
	require.Equal(t, api.Subject{Kind: api.KindCgroup, ID: "/user@1000.service"}, under)
	require.Equal(t, "to:any:53/udp@cgroup:/user@1000.service", s.Subject(under).String())
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "neither an address, a prefix nor a name",
		"10.0.0.1/8":                  "has more bits than its length of 8: 10.0.0.0/8?",
		"10.0.0.0/33":                 "neither an address",
		"10.0.0":                      "neither an address",
		"fe80::1%eth0":                "another one on each device",
		"10.0.0.0/8:":                 "ends before its port",
		"[::1]:":                      "ends before its port",
		"[::1]443":                    "write an IPv6 prefix and a port",
		"10.0.0.0/8:70000":            "no port",
		"10.0.0.0/8:9-8":              "ends before it begins",
		"10.0.0.0/8:80,10.1.0.0/16:8": "one range",
		"!10.0.0.0/8":                 "all is left out",
		"any,!example.com":            "only addresses and prefixes",
		"any@bob":                     "subject",
		"-x.example":                  "neither",
	} {
		_, _, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"any,!10.0.0.0/8:80-90/udp@user:bob", "[::1]:1", "example.com/tcp"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, under, err := Parse(text)
		if err != nil {
			return
		}
		again, whose, err := Parse(s.Subject(under).ID)
		require.NoError(t, err)
		require.Equal(t, s.String(), again.String())
		require.Equal(t, under, whose)
	})
}

// slowly is a slow model of the meaning of limits. Among those that contain the address, the one with the longest
// prefix holds, then the one for fewer ports, then the one for one protocol. The files' rules come last.
func slowly(limits []Limit, a netip.Addr, port uint16) (best uint32) {
	bestBits, bestPorts, bestOne := -1, 0, false
	for _, l := range limits {
		bits, held := -1, false
		for _, p := range l.Prefixes {
			if p.Contains(a) && p.Bits() > bits {
				bits, held = p.Bits(), true
			}
		}
		for _, p := range l.Except {
			if p.Contains(a) && p.Bits() >= bits {
				bits, held = p.Bits(), false
			}
		}
		from, to := l.Ports()
		ports, one := int(to)-int(from), l.Protocol != ""
		if !held || port < from || port > to {
			continue
		}
		if bits > bestBits || bits == bestBits && (ports < bestPorts || ports == bestPorts && one && !bestOne) {
			best, bestBits, bestPorts, bestOne = l.Rule, bits, ports, one
		}
	}
	return best
}

// lookup models the kernel side.
func lookup(list []enforce.DestinationPrefix, a netip.Addr, port uint16) uint32 {
	var best *enforce.DestinationPrefix
	length := -1
	for i, d := range list {
		bits := d.Prefix.Bits()
		if d.Prefix.Addr().Is4() {
			bits += 96
		}
		if bits > length && (d.Prefix.Contains(a) || d.Prefix.Addr().Is6() && d.Prefix.Contains(netip.AddrFrom16(a.As16()))) {
			best, length = &list[i], bits
		}
	}
	if best == nil {
		return 0
	}
	for _, r := range best.Rules {
		if r.PortFrom <= port && port <= r.PortTo {
			return r.Rule
		}
	}
	return 0
}

func TestCompile(t *testing.T) {
	texts := []string{
		"any", "0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.0/8:443", "10.1.0.0/16,2001:db8::/32", "10.1.2.3", "any,!10.0.0.0/8",
		"10.0.0.0/8,!10.1.0.0/16,10.1.2.3", "any:443", "any:400-500", "[2001:db8::1]:443", "::/0,!2001:db8::/32", "10.1.0.0/16/udp",
	}
	file := []enforce.DestinationPrefix{
		{Prefix: netip.MustParsePrefix("0.0.0.0/0")},
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Rules: []enforce.DestinationRule{{Rule: 1000, PortTo: lastPort}}},
	}
	rapid.Check(t, func(t *rapid.T) {
		var limits []Limit
		for i, text := range rapid.SliceOfNDistinct(rapid.SampledFrom(texts), 0, 8, rapid.ID).Draw(t, "limits") {
			s, _, err := Parse(text)
			require.NoError(t, err)
			limits = append(limits, Limit{Selector: s, Rule: uint32(i + 1)})
		}
		list, over := Compile(7, limits, file)
		require.Empty(t, over)
		for _, address := range []string{"10.1.2.3", "10.1.2.4", "10.2.0.1", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db9::1"} {
			for _, port := range []uint16{443, 80, 450} {
				a := netip.MustParseAddr(address)
				want := slowly(limits, a, port)
				if want == 0 && file[1].Prefix.Contains(a) {
					want = 1000
				}
				require.Equal(t, want, lookup(list, a, port), "%s port %d", address, port)
			}
		}
	})
}

func TestCompileTooMany(t *testing.T) {
	var limits []Limit
	for i := range enforce.MostDestinationRules + 1 {
		limits = append(limits, Limit{Selector: Selector{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, PortFrom: uint16(i + 1), PortTo: uint16(i + 1)}, Rule: uint32(i + 1)})
	}
	list, over := Compile(7, limits, nil)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, over)
	require.Len(t, list[1].Rules, enforce.MostDestinationRules)
}
