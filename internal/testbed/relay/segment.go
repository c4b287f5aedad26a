package relay

import (
	"encoding/binary"
	"errors"
)

// A TUN device with IFF_VNET_HDR puts this header before each packet (struct virtio_net_hdr). Its fields are flags,
// kind of segmentation, length of the headers, size of a segment's payload, start of the checksummed data, and
// offset of the checksum.
const (
	vnetLen = 10

	vnetNeedsChecksum = 1

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoECN   = 0x80
)

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

var errMalformed = errors.New("malformed packet")

// segments calls each for every packet that a chunk from a TUN device contains, in order. The packet's headers and
// payload are valid during the call. headers begins with a vnet header.
func segments(chunk []byte, each func(headers, payload []byte)) error {
	if len(chunk) < vnetLen+20 {
		return errMalformed
	}
	kind := chunk[1] &^ gsoECN
	if kind == gsoNone {
		each(chunk, nil)
		return nil
	}
	if kind != gsoTCPv4 && kind != gsoTCPv6 {
		return errMalformed
	}
	size := int(binary.NativeEndian.Uint16(chunk[4:]))
	tcp := vnetLen + int(binary.NativeEndian.Uint16(chunk[6:]))
	if size == 0 || tcp < vnetLen+20 || len(chunk) < tcp+20 {
		return errMalformed
	}
	end := tcp + int(chunk[tcp+12]>>4)*4
	if end < tcp+20 || len(chunk) < end || end > len(cut{}.headers) {
		return errMalformed
	}
	c := cut{tcp: tcp, end: end, v6: kind == gsoTCPv6}
	copy(c.headers[:], chunk[:end])
	binary.NativeEndian.PutUint16(c.headers[2:], uint16(end-vnetLen))
	c.headers[1] = gsoNone
	binary.NativeEndian.PutUint16(c.headers[4:], 0)
	for payload := chunk[end:]; ; payload = payload[size:] {
		if len(payload) <= size {
			each(c.next(chunk, len(payload), true), payload)
			return nil
		}
		each(c.next(chunk, size, false), payload[:size])
	}
}

// cut makes the headers of the segments of one chunk.
type cut struct {
	headers  [vnetLen + 60 + 60]byte
	tcp, end int // start and end of the TCP header
	v6       bool
	done     int // segments
	sent     int // payload bytes
}

func (c *cut) next(chunk []byte, payload int, last bool) []byte {
	h := c.headers[:c.end]
	ip, tcp := h[vnetLen:], h[c.tcp:]
	length := len(ip) + payload
	var pseudo uint32
	if c.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length-40))
		pseudo = sum(ip[8:40])
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(length))
		id := binary.BigEndian.Uint16(chunk[vnetLen+4:])
		binary.BigEndian.PutUint16(ip[4:], id+uint16(c.done))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:c.tcp-vnetLen])))
		pseudo = sum(ip[12:20])
	}
	seq := binary.BigEndian.Uint32(chunk[c.tcp+4:])
	binary.BigEndian.PutUint32(tcp[4:], seq+uint32(c.sent))
	flags := chunk[c.tcp+13]
	if !last {
		flags &^= tcpFIN | tcpPSH
	}
	if c.done > 0 {
		flags &^= tcpCWR
	}
	tcp[13] = flags
	// The receiver's offload would complete this checksum: it holds the sum of the pseudo header.
	const protocolTCP = 6
	binary.BigEndian.PutUint16(tcp[16:], fold(pseudo+protocolTCP+uint32(len(tcp)+payload)))
	c.done++
	c.sent += payload
	return h
}

// sum adds up big-endian 16-bit words; b has an even length.
func sum(b []byte) (s uint32) {
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	return s
}

func fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
