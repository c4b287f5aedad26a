package clock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/clock/clocktest"
)

// The kernel's reservation without extra is that of the model, to the nanosecond.
func TestKernelReservationIsModel(t *testing.T) {
	chunks := 0
	checkBench(t, 0, func(t *rapid.T, b *bench) {
		b.rate = max(b.rate, 50_000_000) // the amount that the class may owe does not matter here
		period := rapid.Uint64Range(1_000_000, 1_000_000_000).Draw(t, "period")
		guarantee := rapid.Uint64Range(b.rate/100, b.rate/2).Draw(t, "guarantee")
		b.reserved = reserved{period: period, only: 1}
		model := &Reservation{PeriodNS: period, SliceBytes: SliceBytes(guarantee, period), Rate: b.rate, Sent: new(uint64)}
		now := uint64(bootNS)
		for range rapid.IntRange(1, 40).Draw(t, "chunks") {
			bytes := min(chunkSizes().Draw(t, "bytes"), b.rate/10)
			want := model.Charge(bytes, now)
			got := b.doGuaranteed(clocktest.Charge, 1, 100, bytes, now, guarantee).PaidNs
			if got != want {
				t.Fatalf("after %d ns: the kernel says %d, the model %d ns later", now-bootNS, int64(got-now), int64(want-now))
			}
			chunks++
			switch rapid.IntRange(0, 3).Draw(t, "next") {
			case 0: // late
				now = max(now, got) + rapid.Uint64Range(0, 3*period).Draw(t, "late")
			case 1: // another connection of the same program sends
				now += rapid.Uint64Range(0, period/4).Draw(t, "beside")
			default:
				now = max(now, got)
			}
		}
	})
	t.Logf("%d chunks compared", chunks)
}

// The figures are those of the paper's 10 Mbit/s Ethernet, with packets of 1500 bytes. A slice of 2.4 ms in 50 ms is
// two packets in each period, and 3 ms are alternately two and three. This holds beside other classes of any weight.
// They get the rest, and all classes together get the rate.
func TestReservation(t *testing.T) {
	r := open(t)
	const rate, packet = 1_250_000, 1500
	for _, c := range []struct {
		name          string
		slice, period uint64 // us
		want          []int  // packets in a period
	}{{"2.4 of 50 ms", 2400, 50_000, []int{2}}, {"3 of 50 ms", 3000, 50_000, []int{2, 3}}, {"3.6 of 200 ms", 3600, 200_000, []int{3}}, {"6 of 10 ms", 6000, 10_000, []int{5}}} {
		for _, others := range []int{0, 8} {
			b := newBench(t, r, rate, rate/100, clocktest.FirstVirtualTime)
			guarantee := rate * c.slice / c.period
			b.reserved = reserved{period: c.period * 1000, only: 1, class: 1}
			x := &sender{class: 1, weight: 1, chunk: fixed(packet), next: bootNS, guarantee: guarantee}
			all := []*sender{x}
			for i := range others {
				all = append(all, &sender{class: uint64(10 + i), weight: 10000, chunk: fixed(packet), next: bootNS})
			}
			b.run(all, bootNS+2e9, math.MaxInt)
			for _, s := range all {
				s.bytes = 0
			}
			const periods = 40
			var each []int
			at := uint64(bootNS + 2e9)
			for range periods {
				before := x.bytes
				at += c.period * 1000
				b.run(all, at, math.MaxInt)
				each = append(each, int(x.bytes-before)/packet)
			}
			sum := uint64(0)
			for _, s := range all {
				sum += s.bytes
			}
			span := float64(periods*c.period) / 1e6
			b.close()
			for _, n := range each {
				require.Contains(t, c.want, n, "%s beside %d: %v", c.name, others, each)
			}
			require.InEpsilon(t, span*float64(guarantee), x.bytes, 0.02, "%s beside %d", c.name, others)
			t.Logf("%s beside %d: %.4f of the reservation, all %.4f", c.name, others, float64(x.bytes)/span/float64(guarantee), float64(sum)/span/rate)
			if others > 0 {
				require.InEpsilon(t, span*rate, sum, 0.02, "%s beside %d: all", c.name, others)
			}
		}
	}
}

// A reservation with extra also gets its share of the rest. Other classes get what it does not use.
func TestReservationExtra(t *testing.T) {
	r := open(t)
	const rate, packet = 1_250_000, 1500
	b := newBench(t, r, rate, rate/100, clocktest.FirstVirtualTime)
	defer b.close()
	b.reserved = reserved{period: 10_000_000, class: 1}
	x := &sender{class: 1, weight: 100, chunk: fixed(packet), next: bootNS, guarantee: rate * 4 / 10}
	y := &sender{class: 2, weight: 100, chunk: fixed(packet), next: bootNS}
	all := []*sender{x, y}
	b.run(all, bootNS+2e9, math.MaxInt)
	x.bytes, y.bytes = 0, 0
	b.run(all, bootNS+7e9, math.MaxInt)
	t.Logf("%.4f and %.4f of the rate", float64(x.bytes)/5/rate, float64(y.bytes)/5/rate)
	require.InEpsilon(t, 5*0.7*rate, x.bytes, 0.02)
	require.InEpsilon(t, 5*0.3*rate, y.bytes, 0.02)
	y.bytes = 0
	b.run([]*sender{y}, bootNS+12e9, math.MaxInt)
	require.InEpsilon(t, 5*rate, y.bytes, 0.02, "alone")
}

// Reservations whose periods begin together take turns. A link of the clock's rate then has to queue a packet of each
// reservation, and one more. It queues a further one where a short period leaves no time to wait. Each reservation gets
// its slice, whatever the periods of the others are.
func TestReservationsTakeTurns(t *testing.T) {
	r := open(t)
	const rate, packet = 1_250_000, 1500
	type slice struct{ slice, period uint64 } // us
	for name, slices := range map[string][]slice{
		"11 of 50 ms, four times":     {{11_000, 50_000}, {11_000, 50_000}, {11_000, 50_000}, {11_000, 50_000}},
		"6 of 10 ms beside 36 of 200": {{6_000, 10_000}, {36_000, 200_000}},
	} {
		b := newBench(t, r, rate, rate/100, clocktest.FirstVirtualTime)
		b.each = map[uint64]uint64{}
		var all []*sender
		for i, s := range slices {
			class := uint64(1 + i)
			b.each[class] = s.period * 1000
			all = append(all, &sender{class: class, weight: 100, chunk: fixed(packet), next: bootNS, guarantee: rate * s.slice / s.period})
		}
		b.run(all, bootNS+2e9, math.MaxInt)
		for _, s := range all {
			s.bytes = 0
		}
		queued, most, last := 0.0, 0.0, uint64(bootNS+2e9)
		for _, c := range b.run(all, bootNS+6e9, math.MaxInt) {
			queued = max(queued-float64(c.at-last)*rate/1e9, 0) + float64(c.bytes)
			most, last = max(most, queued), c.at
		}
		b.close()
		t.Logf("%s: a line of that rate queues %.1f packets at most", name, most/packet)
		spare := 1
		if slices[0] != slices[1] {
			spare = 2
		}
		require.LessOrEqual(t, most, float64(len(slices)+spare)*packet, name)
		for i, s := range all {
			require.InEpsilon(t, 4*float64(s.guarantee), s.bytes, 0.02, "%s: %v", name, slices[i])
		}
	}
}
