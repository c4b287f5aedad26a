package relay

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestTravel(t *testing.T) {
	const now = int64(time.Hour)
	for name, c := range map[string]struct {
		path Path
		due  []time.Duration // arrival times of packets of 1000 bytes that enter at once, -1 = dropped
	}{
		"nothing": {Path{}, []time.Duration{0, 0}},
		"delay":   {Path{Delay: time.Second}, []time.Duration{time.Second, time.Second}},
		"rate":    {Path{Rate: 1e6, Buffer: 2500}, []time.Duration{time.Millisecond, 2 * time.Millisecond, -1}},
		"both":    {Path{Rate: 1e6, Delay: time.Second}, []time.Duration{1001 * time.Millisecond, 1002 * time.Millisecond}},
	} {
		tr := newTravel(c.path, 1, 1)
		for i, want := range c.due {
			f, due, _ := tr.packet(now, 1000)
			if want < 0 {
				if f != full {
					t.Errorf("%s: packet %d was not dropped", name, i)
				}
				continue
			}
			if f != passes || time.Duration(due-now) != want {
				t.Errorf("%s: packet %d arrives after %v (%d), want %v", name, i, time.Duration(due-now), f, want)
			}
		}
	}
}

func TestTravelJitter(t *testing.T) {
	const delay, jitter = 20 * time.Millisecond, 10 * time.Millisecond
	tr := newTravel(Path{Delay: delay, Jitter: jitter}, 3, 1)
	least, most, last := time.Hour, time.Duration(0), int64(0)
	for now := int64(time.Hour); now < int64(time.Hour+10*time.Second); now += int64(100 * time.Microsecond) {
		_, due, _ := tr.packet(now, 1000)
		if due < last {
			t.Fatal("a packet overtakes")
		}
		last = due
		least, most = min(least, time.Duration(due-now)), max(most, time.Duration(due-now))
	}
	if least < delay || least > delay+time.Millisecond || most > delay+jitter || most < delay+jitter-time.Millisecond {
		t.Errorf("delays from %v to %v, want %v to %v", least, most, delay, delay+jitter)
	}
}

// chunk returns the bytes that a device delivers for a large send.
func chunk(v6 bool, payload []byte, size int) []byte {
	ip := 20
	if v6 {
		ip = 40
	}
	b := make([]byte, vnetLen+ip+32, vnetLen+ip+32+len(payload))
	b[0], b[1] = vnetNeedsChecksum, gsoTCPv4
	if v6 {
		b[1] = gsoTCPv6 | gsoECN
	}
	binary.NativeEndian.PutUint16(b[4:], uint16(size))
	binary.NativeEndian.PutUint16(b[6:], uint16(ip))
	binary.NativeEndian.PutUint16(b[8:], 16)
	h := b[vnetLen:]
	for i := range ip {
		h[i] = byte(i*7 + 1)
	}
	h[0] = 0x45
	if v6 {
		h[0] = 0x60
	}
	tcp := h[ip:]
	binary.BigEndian.PutUint32(tcp[4:], math.MaxUint32-999)
	tcp[12], tcp[13] = 8<<4, 0x10|tcpPSH|tcpFIN|tcpCWR
	return append(b, payload...)
}

func TestSegments(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, length := range []int{1, 1000, 1001, 2500} {
			payload := make([]byte, length)
			for i := range payload {
				payload[i] = byte(i * 31)
			}
			in := chunk(v6, payload, 1000)
			ip := 20
			if v6 {
				ip = 40
			}
			var got []byte
			var n int
			err := segments(in, func(headers, part []byte) {
				h := headers[vnetLen:]
				tcp := h[ip:]
				last := len(got)+len(part) == length
				if seq := binary.BigEndian.Uint32(tcp[4:]) - binary.BigEndian.Uint32(in[vnetLen+ip+4:]); int(seq) != len(got) {
					t.Errorf("segment %d begins at %d, want %d", n, seq, len(got))
				}
				if psh, cwr := tcp[13]&(tcpPSH|tcpFIN) != 0, tcp[13]&tcpCWR != 0; psh != last || cwr != (n == 0) {
					t.Errorf("segment %d has flags %#x", n, tcp[13])
				}
				total, offset := len(h)+len(part), 2
				if v6 {
					total, offset = total-40, 4
				} else if fold(sum(h[:20])) != 0xffff {
					t.Errorf("segment %d: the header's checksum is wrong", n)
				}
				if length := binary.BigEndian.Uint16(h[offset:]); int(length) != total {
					t.Errorf("segment %d says that it is %d long, want %d", n, length, total)
				}
				if headers[0] != vnetNeedsChecksum || headers[1] != gsoNone {
					t.Errorf("segment %d has the vnet header %v", n, headers[:vnetLen])
				}
				got = append(got, part...)
				n++
			})
			if err != nil || !bytes.Equal(got, payload) || n != (length+999)/1000 {
				t.Errorf("IPv6 %v: %d bytes were cut into %d segments (%v)", v6, length, n, err)
			}
		}
	}
}

func TestSegmentsRefuses(t *testing.T) {
	whole := chunk(false, make([]byte, 3000), 1000)
	for n := range vnetLen + 20 + 20 {
		if segments(whole[:n], func(_, _ []byte) { t.Error("a packet was made") }) == nil {
			t.Errorf("%d bytes of a chunk were taken", n)
		}
	}
	none := chunk(false, make([]byte, 3000), 0)
	if segments(none, func(_, _ []byte) {}) == nil {
		t.Error("segments without size were taken")
	}
}

// The test compares the queue with a plain list.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	q := newQueue(5000, 16)
	var model [][]byte
	held, refused := 0, 0
	for i := range 100_000 {
		if r.IntN(2) == 0 {
			p := bytes.Repeat([]byte{byte(i)}, 1+r.IntN(900))
			if q.push(int64(i), p[:1], p[1:]) {
				model = append(model, p)
				held += len(p)
			} else {
				refused++
				// One packet's length is unused at the end, and one at the beginning.
				if len(model) < 16 && held+3*900 < 5000 {
					t.Fatalf("refused with %d packets, %d bytes", len(model), held)
				}
			}
			continue
		}
		got, _, ok := q.head()
		if ok != (len(model) > 0) {
			t.Fatal("the queue is empty, or not, unlike the model")
		}
		if ok {
			if !bytes.Equal(got, model[0]) {
				t.Fatalf("step %d: another packet than the model's", i)
			}
			held -= len(model[0])
			q.pop()
			model = model[1:]
		}
	}
	if refused == 0 {
		t.Error("the queue was never full")
	}
}
