package clock

import "math/big"

const (
	// guaranteeCreditNS is how late a chunk may be charged to a guarantee without a loss of guaranteed bytes.
	guaranteeCreditNS = 10_000_000
	// guaranteeOwedNS is how far ahead of now guarantees may push the clock's time.
	guaranteeOwedNS = 200_000_000
	// takenNS is the time over which the rate that guarantees take is averaged.
	takenNS = 200_000_000
)

// guaranteeOf returns the part of a guarantee that a clock can keep: at most 19/20 of its rate. All are in bytes/s.
func guaranteeOf(guarantee, rate uint64) uint64 { return min(guarantee, rate-rate/20) }

// guaranteedFrom returns the time at which all that a class's guarantee pays for is paid, in ns. For a new guarantee
// that is now.
func (c *Clock) guaranteedFrom(id uint64, now *big.Rat) *big.Rat {
	if c.Guarantees[id] == nil {
		c.Guarantees[id] = new(big.Rat).Set(now)
	}
	return c.Guarantees[id]
}

// good reports whether the clock can pay the guarantees. If it cannot, they exceed its rate.
func (c *Clock) good(now *big.Rat) bool {
	owed := new(big.Rat).Sub(c.Time, now)
	return owed.Cmp(ratOf(guaranteeOwedNS)) <= 0
}

// Left returns the rate that guarantees leave to the classes, in bytes/s. It subtracts the mean over takenNS of the
// rate that they take, and brings that mean up to now, in ns.
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

// ChargeGuaranteed charges bytes of a class that has a guarantee, in bytes/s. It charges either the class or the
// guarantee, whichever is paid first. Bytes that the guarantee pays for take the clock's time from all classes.
// ChargeGuaranteed returns when the first of the two is paid after that, in ns. Otherwise it does what Charge does.
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
