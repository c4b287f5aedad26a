package probe

import (
	"encoding/binary"
	"fmt"
)

// The packets between a prober and a reflector, big endian, in UDP:
//
//	0  "NNPR"            8  cookie of the reflector's     24 seq (16 bits), zero
//	4  version, 1        16 nonce of the prober's         32 when it was received, ns
//	5  message
//	6  zero
//
// An answer is 40 bytes and no request is shorter, so the reflector never sends more than it received.
// At the first contact the prober receives the cookie for its address, and each probe then contains it. A sender
// with a forged address never sees the cookie.
const (
	reflectLength  = 40
	reflectMagic   = "NNPR"
	reflectVersion = 1
)

type message byte

const (
	helloMessage     message = 1 // prober asks for its cookie
	challengeMessage message = 2 // reflector returns the cookie
	probeMessage     message = 3 // prober's probe, of any size from 40 bytes on
	replyMessage     message = 4 // reflector's reply to a probe
)

type reflectPacket struct {
	message    message
	cookie     uint64
	nonce      uint64
	seq        uint16
	receivedNS int64
}

// put writes the packet into the beginning of b, which has at least 40 bytes.
func (p reflectPacket) put(b []byte) {
	copy(b, reflectMagic)
	b[4], b[5], b[6], b[7] = reflectVersion, byte(p.message), 0, 0
	binary.BigEndian.PutUint64(b[8:], p.cookie)
	binary.BigEndian.PutUint64(b[16:], p.nonce)
	binary.BigEndian.PutUint64(b[24:], uint64(p.seq)<<48)
	binary.BigEndian.PutUint64(b[32:], uint64(p.receivedNS))
}

func parseReflect(b []byte) (reflectPacket, error) {
	if len(b) < reflectLength || string(b[:4]) != reflectMagic || b[4] != reflectVersion || b[6] != 0 || b[7] != 0 {
		return reflectPacket{}, fmt.Errorf("%w: not netnice's", ErrMalformed)
	}
	p := reflectPacket{
		message: message(b[5]), cookie: binary.BigEndian.Uint64(b[8:]), nonce: binary.BigEndian.Uint64(b[16:]),
		seq: binary.BigEndian.Uint16(b[24:]), receivedNS: int64(binary.BigEndian.Uint64(b[32:])),
	}
	if p.message < helloMessage || p.message > replyMessage || binary.BigEndian.Uint64(b[24:])<<16 != 0 {
		return reflectPacket{}, fmt.Errorf("%w: unknown message", ErrMalformed)
	}
	return p, nil
}
