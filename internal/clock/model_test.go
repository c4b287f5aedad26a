package clock

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func seconds(v *big.Rat) float64 {
	s, _ := new(big.Rat).Quo(v, nsPerSec).Float64()
	return s
}

// step does what the kernel does for a chunk. A new class begins before Advance.
func (c *Clock) step(id uint64, weight uint32, bytes, rate, burst uint64, now *big.Rat) {
	c.class(id)
	c.SetRate(id, weight, rate)
	c.Advance(rate, burst, now)
	c.Charge(id, weight, bytes, rate, burst)
}

func TestModelSharesByWeight(t *testing.T) {
	c := New(nil, 0)
	zero := new(big.Rat)
	c.step(1, 1, 300, 100, 0, zero)
	require.Equal(t, 3.0, seconds(c.Paid(1, 1, 100)), "alone")
	c.step(2, 3, 300, 100, 0, zero)
	require.Equal(t, 4.0, seconds(c.Paid(2, 3, 100)), "three quarters of the rate")
	require.Equal(t, 12.0, seconds(c.Paid(1, 1, 100)), "if the other stayed")
	require.Equal(t, 6.0, seconds(c.Departure(1, 100)), "the other goes after 4 s")
	require.Equal(t, 4.0, seconds(c.Departure(2, 100)))
}

func TestModelNewcomerWaitsForItsShareOnly(t *testing.T) {
	c := New(nil, 0)
	c.step(1, 1, 1_000_000, 100, 0, new(big.Rat))
	c.step(2, 1, 100, 100, 0, new(big.Rat))
	require.Equal(t, 2.0, seconds(c.Paid(2, 1, 100)))
}

func TestModelBurst(t *testing.T) {
	c := New(nil, 0)
	c.step(1, 1, 100, 100, 50, new(big.Rat))
	require.Equal(t, 1.0, seconds(c.Paid(1, 1, 100)))
	hour := new(big.Rat).Mul(nsPerSec, big.NewRat(3600, 1))
	c.step(1, 1, 100, 100, 50, hour)
	require.Equal(t, 3600.5, seconds(c.Paid(1, 1, 100)), "50 bytes may be made up for")
}

func TestModelLoweredRateKeepsOldPromises(t *testing.T) {
	c := New(nil, 0)
	c.step(1, 1, 100, 100, 0, new(big.Rat))
	half := big.NewRat(500_000_000, 1)
	c.SetRate(1, 1, 10)
	c.Advance(10, 0, half)
	require.Equal(t, 1.0, seconds(c.Paid(1, 1, 10)))
	c.SetRate(1, 1, 1000)
	require.Less(t, seconds(c.Paid(1, 1, 1000)), 0.6)
}

// The sum over all classes keeps to the rate exactly. The charged bytes are those that the clock has served, those that
// are still owed, and those that were sent on credit.
func TestModelConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(1, 1e11).Draw(t, "rate")
		burst := rapid.Uint64Range(0, 1e6).Draw(t, "burst")
		c := New(nil, 0)
		now, charged := new(big.Rat), new(big.Rat)
		weights := map[uint64]uint32{}
		for range rapid.IntRange(1, 12).Draw(t, "chunks") {
			id := rapid.Uint64Range(1, 4).Draw(t, "class")
			if weights[id] == 0 {
				weights[id] = rapid.Uint32Range(1, 10000).Draw(t, "weight")
			}
			gap := ratOf(rapid.Uint64Range(0, 200_000).Draw(t, "gap in bytes"))
			now = new(big.Rat).Add(now, timeFor(gap, rate))
			bytes := rapid.Uint64Range(1, 65536).Draw(t, "bytes")
			c.step(id, weights[id], bytes, rate, burst, now)
			charged.Add(charged, ratOf(bytes))

			owed := new(big.Rat)
			for id, k := range c.Classes {
				if ahead := new(big.Rat).Sub(k.Finish, c.Virtual); ahead.Sign() > 0 {
					owed.Add(owed, ahead.Mul(ahead, ratOf(uint64(weights[id]))))
				}
			}
			served := new(big.Rat).Quo(new(big.Rat).Mul(c.Time, ratOf(rate)), nsPerSec)
			if most := owed.Add(owed, served); charged.Cmp(most) > 0 {
				t.Fatalf("charged %v bytes, served and owed %v", charged, most)
			}
		}
	})
}
