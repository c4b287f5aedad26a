// Package destination reads and writes selectors: the part of the traffic that a command's limit
// is for. It also lists the limits that hold for each prefix. It looks no name up
// and sets no limit.
package destination

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/netnice/netnice/api"
)

// Selector is a part of the traffic: the packets to and from some addresses.
type Selector struct {
	Prefixes []netip.Prefix // sorted, like Except and Names
	Except   []netip.Prefix // exceptions; for an address the longest prefix counts
	Names    []string       // host names, which mean their present addresses
	List     string         // path of a file that lists prefixes, "" = none
	// PortFrom to PortTo are the service's ports; 0 to 0 for all of them.
	PortFrom, PortTo uint16
	Protocol         string // "tcp" or "udp", "" for both
	// Each says that each address has a limit of its own; with IPv6, each prefix of 64 bits.
	Each bool
}

// Refused returns the error of a request that names a part of the traffic wrongly.
func Refused(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: Example}
}

// Example shows how a part of the traffic is named.
const Example = "such as: netnice set --to 10.0.0.0/8:443 --up 10MB/s; netnice set --user bob --to any --except 10.0.0.0/8 --down 5MB/s"

const (
	everything = "any"
	lastPort   = 65535
)

func everywhere() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// Parse reads the id of a subject of the kind "to". Under is the subject whose traffic is meant, the zero value
// for everybody. Examples: "10.0.0.0/8:443", "[2001:db8::/32]:443/udp", "any,!10.0.0.0/8",
// "example.com@user:bob".
func Parse(id string) (s Selector, under api.Subject, err error) {
	text, whose, isUnder := strings.Cut(id, "@")
	if isUnder {
		if under, err = api.ParseSubject(whose); err != nil {
			return s, under, err
		}
	}
	text, s.Each = strings.CutSuffix(text, eachSuffix)
	if before, ok := strings.CutSuffix(text, "/tcp"); ok {
		text, s.Protocol = before, "tcp"
	} else if before, ok := strings.CutSuffix(text, "/udp"); ok {
		text, s.Protocol = before, "udp"
	}
	for _, piece := range strings.Split(text, ",") {
		if err := s.add(piece); err != nil {
			return s, under, err
		}
	}
	return s, under, s.tidy()
}

// FromFlags makes a selector from the flags of a command line.
func FromFlags(to, except []string, protocol string) (s Selector, under api.Subject, err error) {
	pieces := slices.Clone(to)
	for _, text := range except {
		for _, piece := range strings.Split(text, ",") {
			pieces = append(pieces, "!"+strings.TrimPrefix(piece, "!"))
		}
	}
	text, whose, isUnder := strings.Cut(strings.Join(pieces, ","), "@")
	if protocol != "" {
		if protocol != "tcp" && protocol != "udp" {
			return s, under, fmt.Errorf("there is no protocol %q here: tcp or udp; without it, both", protocol)
		}
		text += "/" + protocol
	}
	if isUnder {
		text += "@" + whose
	}
	return Parse(text)
}

// add reads one piece between commas.
func (s *Selector) add(piece string) error {
	text, except := strings.CutPrefix(strings.TrimSpace(piece), "!")
	if path, ok := strings.CutPrefix(text, listPrefix); ok {
		return s.addList(path, except)
	}
	address, ports, err := cutPorts(text, piece)
	if err != nil {
		return err
	}
	if ports != "" {
		if err := s.setPorts(ports); err != nil {
			return err
		}
	}
	if address == everything && !except {
		s.Prefixes = append(s.Prefixes, everywhere()...)
		return nil
	}
	return s.addAddresses(address, except, piece)
}

// cutPorts cuts the ports off a piece, "" if it has none. A piece of ports alone is for all addresses. The errors name
// the whole piece.
func cutPorts(text, piece string) (address, ports string, err error) {
	switch {
	case strings.HasPrefix(text, "["):
		inside, behind, closed := strings.Cut(text[1:], "]")
		if !closed || behind != "" && !strings.HasPrefix(behind, ":") {
			return "", "", fmt.Errorf("%q: write an IPv6 prefix and a port as [2001:db8::/32]:443", piece)
		}
		if behind == ":" {
			return "", "", fmt.Errorf("%q ends before its port", piece)
		}
		return inside, strings.TrimPrefix(behind, ":"), nil
	case strings.Count(text, ":") == 1:
		address, ports, _ = strings.Cut(text, ":")
		if ports == "" {
			return "", "", fmt.Errorf("%q ends before its port", piece)
		}
		return cmp.Or(address, everything), ports, nil
	}
	return text, "", nil
}

// addAddresses adds an address, a prefix or a host name, or the exception of a prefix.
func (s *Selector) addAddresses(text string, except bool, piece string) error {
	prefix, err := ParsePrefix(text)
	switch {
	case err == nil && except:
		s.Except = append(s.Except, prefix)
	case err == nil:
		s.Prefixes = append(s.Prefixes, prefix)
	case !isName(text):
		return err
	case except:
		return fmt.Errorf("%q: only addresses and prefixes can be left out", piece)
	default:
		s.Names = append(s.Names, strings.ToLower(strings.TrimSuffix(text, ".")))
	}
	return nil
}

const (
	listPrefix = "file:"
	eachSuffix = "/each"
)

func (s *Selector) addList(text string, except bool) error {
	path, ports, hasPorts := strings.Cut(text, ":")
	switch {
	case except:
		return fmt.Errorf("what a file lists cannot be left out: name prefixes")
	case s.List != "" && s.List != path:
		return fmt.Errorf("%q and %q: a limit is for one file", s.List, path)
	case !strings.HasPrefix(path, "/"), strings.ContainsFunc(path, unicode.IsControl):
		return fmt.Errorf("%q is no absolute path of a file", path)
	}
	s.List = path
	if hasPorts {
		return s.setPorts(ports)
	}
	return nil
}

// ListPath checks that a path can be part of a subject.
func ListPath(path string) error {
	if strings.ContainsAny(path, ":,@") || strings.HasSuffix(path, "/tcp") || strings.HasSuffix(path, "/udp") || strings.HasSuffix(path, eachSuffix) {
		return fmt.Errorf("the path %q has a character that stands between others' names here (: , @), or ends like a protocol: give the file another name", path)
	}
	return nil
}

func (s *Selector) setPorts(text string) error {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	switch {
	case err != nil || err2 != nil || from == 0 || to == 0:
		return fmt.Errorf("%q is no port: they are 1 to %d", text, lastPort)
	case from > to:
		return fmt.Errorf("the range of ports %q ends before it begins", text)
	case s.PortTo != 0 && (s.PortFrom != uint16(from) || s.PortTo != uint16(to)):
		return fmt.Errorf("ports %d-%d and %s: a limit is for one range of them; set another", s.PortFrom, s.PortTo, text)
	}
	s.PortFrom, s.PortTo = uint16(from), uint16(to)
	return nil
}

func (s *Selector) tidy() error {
	for _, list := range []*[]netip.Prefix{&s.Prefixes, &s.Except} {
		*list = Tidy(*list)
	}
	slices.Sort(s.Names)
	s.Names = slices.Compact(s.Names)
	if len(s.Prefixes)+len(s.Names) == 0 && s.List == "" {
		return fmt.Errorf("all is left out: say of what, such as any")
	}
	return nil
}

// ParsePrefix reads an address or a prefix.
func ParsePrefix(text string) (netip.Prefix, error) {
	var p netip.Prefix
	a, err := netip.ParseAddr(text)
	if err == nil {
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
	} else if p, err = netip.ParsePrefix(text); err != nil {
		return p, fmt.Errorf("%q is neither an address, a prefix nor a name", text)
	}
	if a.Zone() != "" {
		return p, fmt.Errorf("%q: an address with a zone means another one on each device", text)
	}
	if masked := p.Masked(); masked != p {
		return p, fmt.Errorf("%q has more bits than its length of %d: %v?", text, p.Bits(), masked)
	}
	const mapped = 96
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p, nil
}

// isName reports whether a text may be a host's name. The last part of a name is no number.
func isName(text string) bool {
	const longest, longestLabel = 253, 63
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > longest {
		return false
	}
	labels := strings.Split(text, ".")
	for _, label := range labels {
		if label == "" || len(label) > longestLabel || label[0] == '-' || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			return false
		}
	}
	return strings.ContainsFunc(labels[len(labels)-1], func(r rune) bool { return r < '0' || r > '9' })
}

// String returns the canonical text that Parse reads, without the subject under.
func (s Selector) String() string {
	var pieces []string
	all := everywhere()
	all4and6 := slices.Contains(s.Prefixes, all[0]) && slices.Contains(s.Prefixes, all[1])
	if all4and6 {
		pieces = append(pieces, everything)
	}
	for _, p := range s.Prefixes {
		if !all4and6 || !slices.Contains(all, p) {
			pieces = append(pieces, s.prefixText(p))
		}
	}
	pieces = append(pieces, s.Names...)
	if s.List != "" {
		pieces = append(pieces, listPrefix+s.List)
	}
	for _, p := range s.Except {
		pieces = append(pieces, "!"+s.prefixText(p))
	}
	text := strings.Join(pieces, ",")
	switch {
	case s.PortTo == 0:
	case s.PortFrom == s.PortTo:
		text += fmt.Sprintf(":%d", s.PortFrom)
	default:
		text += fmt.Sprintf(":%d-%d", s.PortFrom, s.PortTo)
	}
	if s.Protocol != "" {
		text += "/" + s.Protocol
	}
	if s.Each {
		text += eachSuffix
	}
	return text
}

// Peer returns the part of a selector for one address by itself; with IPv6, for the 64 bits that a site has.
func (s Selector) Peer(a netip.Addr) Selector {
	p, _ := a.Prefix(min(a.BitLen(), peerBits)) // never too long
	return Selector{Prefixes: []netip.Prefix{p}, PortFrom: s.PortFrom, PortTo: s.PortTo, Protocol: s.Protocol}
}

const peerBits = 64

func (s Selector) prefixText(p netip.Prefix) string {
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	if p.Addr().Is6() && s.PortTo != 0 {
		return "[" + text + "]"
	}
	return text
}

// Subject returns the canonical subject of a selector and of the subject under.
func (s Selector) Subject(under api.Subject) api.Subject {
	id := s.String()
	if under != (api.Subject{}) {
		id += "@" + under.String()
	}
	return api.Subject{Kind: api.KindTo, ID: id}
}

// Ports returns the first and the last port.
func (s Selector) Ports() (from, to uint16) {
	if s.PortTo == 0 {
		return 0, lastPort
	}
	return s.PortFrom, s.PortTo
}
