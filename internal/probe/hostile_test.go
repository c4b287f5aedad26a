package probe

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// offline returns a prober without a socket, for tests of the answers that it accepts.
func offline(kind Kind, v6 bool) *Prober {
	p := &Prober{
		cfg: Config{Kind: kind, Timeout: time.Minute}, v6: v6, socket: &socket{raw: true}, id: 77,
		random: rand.New(rand.NewPCG(1, 2)), waiting: map[uint16]*flight{},
	}
	p.timer = time.AfterFunc(time.Hour, p.expire)
	return p
}

// answerTo makes the answer of an honest host to a request, in the form that the socket delivers.
func answerTo(kind Kind, v6 bool, request []byte) []byte {
	b := append([]byte(nil), request...)
	switch {
	case kind == UDP:
		b = b[:reflectLength]
		b[5] = byte(replyMessage)
		return b
	case v6:
		b[0] = 129
		return b
	case kind == Timestamp:
		b = b[:timestampLength]
		b[0] = 14
	default:
		b[0] = 0
	}
	ip := make([]byte, 20, 20+len(b))
	ip[0] = 0x45
	return append(ip, b...)
}

func TestOnlyHonestAnswersCount(t *testing.T) {
	for _, k := range []struct {
		kind Kind
		v6   bool
	}{{Timestamp, false}, {Echo, false}, {Echo, true}, {UDP, false}} {
		p := offline(k.kind, k.v6)
		var told []Reply
		var answers [][]byte
		for range 20 {
			_, packet, err := p.prepare(200, 0, func(r Reply) { told = append(told, r) })
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, answerTo(k.kind, k.v6, packet))
		}
		take := func(b []byte) bool {
			a, err := p.parse(b)
			f := p.match(a, err, nowNS())
			return f != nil
		}
		// The test flips every bit of an answer that identifies its request.
		first := answers[0]
		whole := MinSize(k.kind, k.v6) // includes the headers that the socket does not deliver
		if k.v6 || k.kind == UDP {
			whole -= headers(k.kind, k.v6, 0)
		}
		for cut := range whole {
			if take(first[:cut]) {
				t.Errorf("%s: %d bytes of an answer were taken", k.kind, cut)
			}
		}
		seen := map[int]bool{}
		for bit := range len(first) * 8 {
			forged := append([]byte(nil), first...)
			forged[bit/8] ^= 1 << (bit % 8)
			a, err := p.parse(forged)
			honest, _ := p.parse(first)
			if err == nil && a != honest && a.peerNS == honest.peerNS {
				seen[bit/8] = true
				if p.match(a, err, 1) != nil {
					t.Errorf("%s: an answer with bit %d changed was taken", k.kind, bit)
				}
			}
		}
		if len(seen) < 8 {
			t.Errorf("%s: only bytes %v of an answer say who it is for", k.kind, seen)
		}
		// The answers come in another order, and each comes twice.
		for i := len(answers) - 1; i >= 0; i-- {
			if !take(answers[i]) {
				t.Errorf("%s: the answer to %d was refused", k.kind, i)
			}
			if take(answers[i]) {
				t.Errorf("%s: the answer to %d was taken twice", k.kind, i)
			}
		}
		if c := p.Counters(); c.Answered != 20 || c.Refused < 20 {
			t.Errorf("%s: %+v", k.kind, c)
		}
	}
}

func TestLateAnswersAreRefused(t *testing.T) {
	p := offline(Echo, false)
	p.cfg.Timeout = 0
	lost := make(chan bool, 2) // the sender is the timer, or the call below
	_, packet, err := p.prepare(100, 0, func(r Reply) { lost <- r.Lost })
	if err != nil {
		t.Fatal(err)
	}
	p.expire()
	isLost := <-lost
	a, err := p.parse(answerTo(Echo, false, packet))
	if f := p.match(a, err, 1); f != nil || err != nil || !isLost || len(lost) != 0 {
		t.Errorf("taken: %v, lost: %v, %v", f, isLost, err)
	}
}

func FuzzParseICMP(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		b, err := echoRequest(v6, 100, 1, 2, 3)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(answerTo(Echo, v6, b))
	}
	b, err := timestampRequest(20, 1, 2, 3)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(answerTo(Timestamp, false, b))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []Kind{Timestamp, Echo} {
			for _, v6 := range []bool{false, kind == Echo} {
				p := offline(kind, v6)
				if _, _, err := p.prepare(200, 0, nil); err != nil {
					t.Fatal(err)
				}
				a, err := p.parse(b)
				if p.match(a, err, 1) != nil {
					t.Errorf("%s: %x was taken for an answer, whose cookie is not known", kind, b)
				}
			}
		}
	})
}

func FuzzReflector(f *testing.F) {
	from := netip.MustParseAddrPort("192.0.2.1:5000")
	now := time.Unix(1_800_000_000, 0)
	r := &Reflector{limits: newSources()}
	for _, m := range []message{helloMessage, challengeMessage, probeMessage, replyMessage} {
		b := make([]byte, reflectLength)
		reflectPacket{message: m, cookie: r.cookie(from, now), nonce: 1, seq: 2}.put(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Reflector{limits: newSources()}
		out := make([]byte, reflectLength)
		if !r.answer(b, from, 5, now, out) {
			return
		}
		if len(out) > len(b) {
			t.Fatalf("%d bytes for %d", len(out), len(b))
		}
		p, err := parseReflect(b)
		if err != nil || p.message != helloMessage && (p.message != probeMessage || p.cookie != r.cookie(from, now)) {
			t.Fatalf("answered %x: %v", b, err)
		}
	})
}

func TestReflectorAnswersNobodyElse(t *testing.T) {
	r := &Reflector{limits: newSources()}
	from, other := netip.MustParseAddrPort("192.0.2.1:5000"), netip.MustParseAddrPort("192.0.2.1:5001")
	now := time.Unix(1_800_000_000, 0)
	in, out := make([]byte, 1400), make([]byte, reflectLength)
	reflectPacket{message: helloMessage, nonce: 9}.put(in)
	if !r.answer(in, from, 1, now, out) {
		t.Fatal("no answer to a first contact")
	}
	challenge, err := parseReflect(out)
	if err != nil || challenge.nonce != 9 || challenge.message != challengeMessage {
		t.Fatalf("%+v, %v", challenge, err)
	}
	reflectPacket{message: probeMessage, cookie: challenge.cookie, nonce: 10, seq: 11}.put(in)
	if r.answer(in, other, 1, now, out) {
		t.Error("another port used the cookie")
	}
	if r.answer(in, from, 1, now.Add(3*cookieLife), out) {
		t.Error("an old cookie was used")
	}
	if !r.answer(in, from, 12345, now.Add(cookieLife), out) {
		t.Fatal("no answer to a probe")
	}
	reply, err := parseReflect(out)
	if err != nil || reply != (reflectPacket{message: replyMessage, nonce: 10, seq: 11, receivedNS: 12345}) {
		t.Errorf("%+v, %v", reply, err)
	}
}

func TestReflectorBoundsItsAnswers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	answered := func(r *Reflector, address func(i int) netip.Addr) (n int) {
		in, out := make([]byte, reflectLength), make([]byte, reflectLength)
		reflectPacket{message: helloMessage}.put(in)
		for i := range 20_000 {
			if r.answer(in, netip.AddrPortFrom(address(i), 1), 0, now, out) {
				n++
			}
		}
		return n
	}
	one := answered(&Reflector{limits: newSources()}, func(i int) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 8: byte(i >> 8), 9: byte(i)})
	})
	if one != hellosBurst {
		t.Errorf("one network of IPv6 had %d answers at once", one)
	}
	r := &Reflector{limits: newSources()}
	many := answered(r, func(i int) netip.Addr {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0xc0000200+uint32(i))
		return netip.AddrFrom4(a)
	})
	if many != allHellosPerSec {
		t.Errorf("20,000 addresses had %d answers at once", many)
	}
	if len(r.limits.known) > mostSources {
		t.Errorf("%d sources are remembered", len(r.limits.known))
	}
}
