package clock

import "math/big"

const (
	// guaranteeCreditNS is how late a chunk may be charged to a guarantee without losing of it.
	guaranteeCreditNS = 10_000_000
	// guaranteeOwedNS is how far ahead of now guarantees may push the clock's time.
	guaranteeOwedNS = 200_000_000
	// takenNS is the time over which the mean of what guarantees take is made.
	takenNS = 200_000_000
)

// guaranteeOf is what a clock can keep of a guarantee, both in bytes/s.
func guaranteeOf(guarantee, rate uint64) uint64 { return min(guarantee, rate-rate/20) }

// guaranteedFrom returns when a class's guarantee has paid for all, in ns; a new one has at now.
func (c *Clock) guaranteedFrom(id uint64, now *big.Rat) *big.Rat {
	if c.Guarantees[id] == nil {
		c.Guarantees[id] = new(big.Rat).Set(now)
	}
	return c.Guarantees[id]
}

// good says whether the clock can pay guarantees: else more has been guaranteed than there is.
func (c *Clock) good(now *big.Rat) bool {
	owed := new(big.Rat).Sub(c.Time, now)
	return owed.Cmp(ratOf(guaranteeOwedNS)) <= 0
}

// Left is the rate that guarantees leave to the classes, by a mean over takenNS of what they
// take; in bytes/s. It brings that mean up to now, in ns.
func (c *Clock) Left(rate uint64, now *big.Rat) uint64 {
	if now.Cmp(c.TakenAt) > 0 && c.Taken.Sign() > 0 {
		twice := ratOf(2 * takenNS)
		dt := new(big.Rat).Sub(now, c.TakenAt)
		if dt.Cmp(twice) > 0 {
			dt.Set(twice)
		}
		decay := new(big.Rat).Quo(new(big.Rat).Sub(twice, dt), new(big.Rat).Add(twice, dt))
		c.Taken.Mul(c.Taken, decay)
		c.TakenAt.Set(now)
	}
	taken, _ := c.Taken.Float64()
	return rate - guaranteeOf(uint64(taken), rate)
}

// ChargeGuaranteed enters bytes of a class with a guarantee in bytes/s: they are charged to
// that of both which is paid first. What the guarantee pays for takes the clock's time
// from all. It returns when the first of both is paid then, in ns. As Charge otherwise.
func (c *Clock) ChargeGuaranteed(id uint64, weight uint32, bytes, guarantee, rate, burst uint64, now *big.Rat) *big.Rat {
	guarantee = guaranteeOf(guarantee, rate)
	left := c.Left(rate, now)
	paid, at := c.Paid(id, weight, left), c.guaranteedFrom(id, now)
	if paid.Cmp(now) <= 0 || at.Cmp(paid) >= 0 || !c.good(now) {
		c.Charge(id, weight, bytes, rate, burst)
	} else {
		if earliest := new(big.Rat).Sub(now, ratOf(guaranteeCreditNS)); at.Cmp(earliest) < 0 {
			at.Set(earliest)
		}
		at.Add(at, timeFor(ratOf(bytes), guarantee))
		c.Time.Add(c.Time, timeFor(ratOf(bytes), rate))
		if c.Taken.Sign() == 0 {
			c.TakenAt.Set(now)
		}
		if c.Taken.Cmp(ratOf(rate*2)) < 0 {
			c.Taken.Add(c.Taken, ratOf(bytes*(1e9/takenNS)))
		}
	}
	paid = c.Paid(id, weight, left)
	if at.Cmp(paid) < 0 && c.good(now) {
		return new(big.Rat).Set(at)
	}
	return paid
}
