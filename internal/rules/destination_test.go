package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// slowlyReaches is a slow model of the meaning of the key to.
func slowlyReaches(r *Rule, a netip.Addr, port uint16, protocol Protocol) bool {
	longest, except := -1, false
	for _, one := range r.reaches() {
		switch {
		case !one.prefix.Contains(a) || one.prefix.Bits() < longest:
		case one.prefix.Bits() == longest:
			except = except || one.except
		default:
			longest, except = one.prefix.Bits(), one.except
		}
	}
	held := len(r.ports) == 0
	for _, p := range r.ports {
		held = held || p.from <= port && port <= p.to
	}
	return longest >= 0 && !except && held && (r.protocol == "" || r.protocol == protocol)
}

// lookup models the kernel side, which looks IPv4 addresses up as IPv6 ones.
func lookup(list []Destination, a netip.Addr, port uint16, protocol Protocol) *Rule {
	var best *Destination
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
		return nil
	}
	for _, r := range best.Rules {
		if r.From <= port && port <= r.To && (r.Rule.Protocol() == "" || r.Rule.Protocol() == protocol) {
			return r.Rule
		}
	}
	return nil
}

// The longest prefix has the first rule of the file that matches.
func TestDestinations(t *testing.T) {
	prefixes := []string{"0.0.0.0/0", "::/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "2001:db8::1", "!10.0.0.0/8", "!10.1.0.0/16", "!2001:db8::/32", "::ffff:10.1.0.0/112"}
	addresses := []string{"10.1.2.3", "10.1.2.4", "10.2.0.1", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db9::1"}
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for i := range rapid.IntRange(0, 5).Draw(t, "rules") {
			fmt.Fprintf(&text, "[[rule]]\nname = 'r%d'\nup = '1MB/s'\n", i)
			if list := rapid.SliceOfN(rapid.SampledFrom(prefixes), 0, 4).Draw(t, "to"); len(list) > 0 {
				fmt.Fprintf(&text, "to = ['%s']\n", strings.Join(append(list, "10.1.2.3"), "', '"))
				if rapid.Bool().Draw(t, "ports") {
					text.WriteString("port = [443, '8000-8100']\n")
				}
			} else {
				text.WriteString("port = 443\n")
			}
			if p := rapid.SampledFrom([]Protocol{"", TCP, UDP}).Draw(t, "protocol"); p != "" {
				fmt.Fprintf(&text, "protocol = %q\n", p)
			}
		}
		list, err := Parse("f", []byte(text.String()), system)
		require.NoError(t, err)
		found := Compile(list).Destinations(noon)
		for _, address := range addresses {
			for _, port := range []uint16{443, 80, 8000, 8101} {
				a := netip.MustParseAddr(address)
				for _, protocol := range []Protocol{TCP, UDP} {
					var want *Rule
					for _, r := range list {
						if want == nil && slowlyReaches(r, a, port, protocol) {
							want = r
						}
					}
					require.Same(t, want, lookup(found, a, port, protocol), "%s %s port %d of\n%s", address, protocol, port, text.String())
				}
			}
		}
	})
}

func TestDestinedRulesAreApart(t *testing.T) {
	s := Compile(parse(t, `
[[rule]]
name = "to"
program = "scp"
to = "10.0.0.0/8"
up = "1MB/s"
[[rule]]
name = "everybody"
port = 443
up = "1MB/s"
[[rule]]
name = "all"
program = "scp"
up = "2MB/s"
`))
	holding, destined := s.Match(facts()[0], noon)
	require.Equal(t, "all", names(holding))
	require.Equal(t, "to", names(destined))
	require.True(t, s.Rules()[1].Everybody())
	require.Equal(t, ShareAll, s.Rules()[1].Share)
	require.Equal(t, []string{"program scp", "to 10.0.0.0/8"}, s.Rules()[0].Conditions())
}

func TestTooManyForOneDestination(t *testing.T) {
	var text strings.Builder
	for i := range MostPerDestination + 1 {
		fmt.Fprintf(&text, "[[rule]]\nup = '1MB/s'\nto = '10.0.0.0/8'\nport = %d\n", i+1)
	}
	_, err := Parse("f", []byte(text.String()), system)
	require.ErrorContains(t, err, "f:65:1: more than 16 rules are for 10.0.0.0/8, each range of ports counted")
}

func TestProtocolAlone(t *testing.T) {
	r := parse(t, "[[rule]]\nprotocol = 'udp'\nup = '1MB/s'\n")[0]
	require.True(t, r.Everybody())
	require.Equal(t, UDP, r.Protocol())
	require.Equal(t, []string{"protocol udp"}, r.Connections())
	_, err := Parse("f", []byte("[[rule]]\nto = '10.0.0.0/8'\nprotocol = 'sctp'\nup = '1MB/s'\n"), system)
	require.ErrorContains(t, err, `f:3:1: protocol is "sctp"`)
}
