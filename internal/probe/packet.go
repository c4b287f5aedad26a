package probe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Kind is a kind of probe packets.
type Kind string

// Kinds of probe packets.
const (
	// Timestamp is ICMP type 13, IPv4 only. Its answer is 40 bytes for any size of the
	// request, so only the forward path carries the large packet.
	Timestamp Kind = "icmp-timestamp"
	// Echo is ICMP or ICMPv6 echo. Its answer is as large as the request, so the measurement shows the narrower
	// of both directions.
	Echo Kind = "icmp-echo"
	// UDP goes to a netnice reflector, which reports when packets arrived there.
	UDP Kind = "udp"
)

const (
	ipv4Header      = 20
	ipv6Header      = 40
	udpHeader       = 8
	timestampLength = 20 // ICMP header and three times
	echoHeader      = 8
	cookieLength    = 8
)

// ErrMalformed says that a packet is no answer of the expected kind.
var ErrMalformed = errors.New("malformed packet")

// answer is the content of a received packet.
type answer struct {
	id     uint16 // the prober's id; no meaning for UDP
	seq    uint16
	cookie uint64
	peerNS int64 // when the peer received the request, by its clock; 0 unknown
}

// headers returns the length of all headers of a packet before the ICMP message or the
// UDP payload. For a fragmented packet it counts the headers of all fragments.
func headers(kind Kind, v6 bool, fragments int) int {
	n := ipv4Header
	if v6 {
		n = ipv6Header
	}
	if fragments > 0 { // each fragment has IP headers
		n = fragments * fragmentHeaders(v6)
	}
	if kind == UDP {
		n += udpHeader
	}
	return n
}

const ipv6FragmentHeader = 8

// fragmentHeaders returns the length of the IP headers of a fragment.
func fragmentHeaders(v6 bool) int {
	if v6 {
		return ipv6Header + ipv6FragmentHeader
	}
	return ipv4Header
}

// MinSize returns the smallest size of a packet of a kind, in IP bytes.
func MinSize(kind Kind, v6 bool) int {
	n := headers(kind, v6, 0)
	switch kind {
	case Timestamp:
		return n + timestampLength
	case Echo:
		return n + echoHeader + cookieLength
	default:
		return n + reflectLength
	}
}

// nonStandard marks an originate time outside the times of day (RFC 792). Hosts return such a value
// unchanged, so it can be a cookie.
const nonStandard = 1 << 31

// timestampRequest returns an ICMP message of length bytes. It carries 31 bits of cookie.
func timestampRequest(length int, id, seq uint16, cookie uint64) ([]byte, error) {
	body := make([]byte, length-4)
	binary.BigEndian.PutUint16(body, id)
	binary.BigEndian.PutUint16(body[2:], seq)
	binary.BigEndian.PutUint32(body[4:], uint32(cookie)|nonStandard)
	m := icmp.Message{Type: ipv4.ICMPTypeTimestamp, Body: &icmp.RawBody{Data: body}}
	return marshal(m)
}

// echoRequest returns an ICMP or ICMPv6 message of length bytes. The kernel puts the checksum
// into the latter.
func echoRequest(v6 bool, length int, id, seq uint16, cookie uint64) ([]byte, error) {
	data := make([]byte, length-echoHeader)
	binary.BigEndian.PutUint64(data, cookie)
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(id), Seq: int(seq), Data: data}}
	if v6 {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	return marshal(m)
}

func marshal(m icmp.Message) ([]byte, error) {
	b, err := m.Marshal(nil)
	if err != nil {
		return nil, fmt.Errorf("make probe packet: %w", err)
	}
	return b, nil
}

// parseICMP reads an answer to one of the two requests above, an ICMP message without IP header.
func parseICMP(kind Kind, v6 bool, b []byte) (answer, error) {
	protocol, want := 1, icmp.Type(ipv4.ICMPTypeEchoReply)
	switch {
	case v6:
		protocol, want = 58, ipv6.ICMPTypeEchoReply
	case kind == Timestamp:
		want = ipv4.ICMPTypeTimestampReply
	}
	m, err := icmp.ParseMessage(protocol, b)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if m.Type != want || m.Code != 0 {
		return answer{}, fmt.Errorf("%w: type %v, code %d", ErrMalformed, m.Type, m.Code)
	}
	if kind == Timestamp {
		if len(b) < timestampLength {
			return answer{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
		}
		return answer{
			id: binary.BigEndian.Uint16(b[4:]), seq: binary.BigEndian.Uint16(b[6:]),
			cookie: uint64(binary.BigEndian.Uint32(b[8:])),
		}, nil
	}
	echo, ok := m.Body.(*icmp.Echo)
	if !ok || len(echo.Data) < cookieLength {
		return answer{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	return answer{id: uint16(echo.ID), seq: uint16(echo.Seq), cookie: binary.BigEndian.Uint64(echo.Data)}, nil
}

// withoutIPv4 removes the IP header that a raw socket of IPv4 delivers.
func withoutIPv4(b []byte) ([]byte, error) {
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return nil, fmt.Errorf("%w: no IPv4 header", ErrMalformed)
	}
	n := int(b[0]&15) * 4
	if n < ipv4Header || n > len(b) {
		return nil, fmt.Errorf("%w: header of %d bytes", ErrMalformed, n)
	}
	return b[n:], nil
}
