package clock

import "math/big"

// nsPerSec converts rates in bytes/s to times in ns.
var nsPerSec = big.NewRat(1_000_000_000, 1)

// Class is the state of one child in a clock.
type Class struct {
	// Finish is the virtual time at which all bytes of the class are paid, in
	// bytes per unit of weight.
	Finish *big.Rat
	// Until is the virtual time up to which the class has counted as backlogged, or will count, in bytes per unit of
	// weight. It is Finish, or the end of the slot that contained Finish when the class was charged last.
	Until *big.Rat
	// Weight is the weight with which the class counts as backlogged, 1..10000; 0 if it does not count.
	Weight uint32
}

// Clock is a server of a given rate. Its backlogged classes share that rate by weight.
type Clock struct {
	// Slots are the sizes of slots, in bytes per unit of weight. A class counts as backlogged to the end of the slot
	// that contains its finish. The slots have the first size with which 64 slots reach that finish. Without sizes the
	// clock is the fluid model. Wheel returns the sizes of clock.h.
	Slots []uint64
	// Time is the time up to which virtual time is advanced, in ns. It lags
	// behind the present by unused credit, and is ahead of it while credit that
	// was given is being paid back.
	Time *big.Rat
	// Virtual is the virtual time, in bytes per unit of weight. It grows by
	// rate / (sum of the weights of the backlogged classes).
	Virtual *big.Rat
	// Rate is the rate of the last call of SetRate, in bytes/s, 0 = none yet.
	Rate uint64
	// Classes are the classes that a call has named, by their ids.
	Classes map[uint64]*Class
	// Taken is the mean part of the rate that guarantees take, in bytes/s. It is of the time TakenAt, in ns.
	Taken, TakenAt *big.Rat
	// Guarantees has for each guarantee, by the id of its class, the time at which all that it pays for is paid, in ns.
	Guarantees map[uint64]*big.Rat
}

// Wheel returns the sizes of slots that clock.h has.
func Wheel() []uint64 { return []uint64{4, 4 << 4, 4 << 8, 4 << 12, 4 << 16} }

// reach is the number of slots of one size. A finish that is ahead by that number or more needs a larger size.
const reach = 64

// New returns an unused clock at the given time in ns. Without slots it is the fluid model.
func New(slots []uint64, timeNS uint64) *Clock {
	return &Clock{
		Slots: slots, Time: ratOf(timeNS), Virtual: new(big.Rat),
		Classes: map[uint64]*Class{}, Guarantees: map[uint64]*big.Rat{}, Taken: new(big.Rat), TakenAt: new(big.Rat),
	}
}

func ratOf(v uint64) *big.Rat { return new(big.Rat).SetInt(new(big.Int).SetUint64(v)) }

// timeFor returns the ns in which the rate, in bytes/s, serves the given bytes.
func timeFor(bytes *big.Rat, rate uint64) *big.Rat {
	ns := new(big.Rat).Mul(bytes, nsPerSec)
	return ns.Quo(ns, ratOf(rate))
}

// ActiveWeight returns the sum of the weights of the backlogged classes.
func (c *Clock) ActiveWeight() uint64 {
	var sum uint64
	for _, k := range c.Classes {
		sum += uint64(k.Weight)
	}
	return sum
}

// class returns a child's state; a new one begins at the present virtual time.
func (c *Clock) class(id uint64) *Class {
	k := c.Classes[id]
	if k == nil {
		k = &Class{Finish: new(big.Rat).Set(c.Virtual), Until: new(big.Rat).Set(c.Virtual)}
		c.Classes[id] = k
	}
	return k
}

// Advance brings virtual time up to nowNS. Virtual time stands still while no class is backlogged; the clock then keeps
// unused credit, at most the time of burst bytes. The rate is in bytes/s and above 0.
func (c *Clock) Advance(rate, burst uint64, nowNS *big.Rat) {
	for {
		if c.Time.Cmp(nowNS) >= 0 {
			return
		}
		weight := c.ActiveWeight()
		if weight == 0 {
			break
		}
		edge := c.firstEdge()
		need := new(big.Rat).Sub(edge, c.Virtual)
		need = timeFor(need.Mul(need, ratOf(weight)), rate)
		left := new(big.Rat).Sub(nowNS, c.Time)
		if need.Cmp(left) > 0 {
			served := left.Mul(left, ratOf(rate))
			served.Quo(served, nsPerSec)
			served.Quo(served, ratOf(weight))
			c.Virtual.Add(c.Virtual, served)
			c.Time.Set(nowNS)
			return
		}
		c.Virtual.Set(edge)
		c.Time.Add(c.Time, need)
		for _, k := range c.Classes {
			if k.Weight != 0 && k.Until.Cmp(edge) <= 0 {
				k.Weight = 0
			}
		}
	}
	floor := new(big.Rat).Sub(nowNS, timeFor(ratOf(burst), rate))
	if c.Time.Cmp(floor) < 0 {
		c.Time.Set(floor)
	}
}

// firstEdge returns the virtual time at which the next class ceases to count as backlogged.
func (c *Clock) firstEdge() *big.Rat {
	var first *big.Rat
	for _, k := range c.Classes {
		if k.Weight != 0 && (first == nil || k.Until.Cmp(first) < 0) {
			first = k.Until
		}
	}
	return new(big.Rat).Set(first)
}

// Paid returns when all that the class has been charged is paid, in ns, if no class becomes backlogged or ceases to be.
// The weight is 1..10000, the rate is in bytes/s and above 0.
func (c *Clock) Paid(id uint64, weight uint32, rate uint64) *big.Rat {
	k := c.class(id)
	return c.reaches(k, k.Finish, weight, rate)
}

func (c *Clock) reaches(k *Class, tag *big.Rat, weight uint32, rate uint64) *big.Rat {
	if tag.Cmp(c.Virtual) <= 0 {
		return new(big.Rat).Set(c.Time)
	}
	active := c.ActiveWeight()
	if k.Weight == 0 {
		active += uint64(weight)
	}
	bytes := new(big.Rat).Sub(tag, c.Virtual)
	ns := timeFor(bytes.Mul(bytes, ratOf(active)), rate)
	return ns.Add(ns, c.Time)
}

// Sent returns what Paid would return without the bytes that deferred chunks have reserved.
func (c *Clock) Sent(id uint64, weight uint32, rate, reserved uint64) *big.Rat {
	k := c.class(id)
	if k.Finish.Cmp(c.Virtual) <= 0 {
		return new(big.Rat).Set(c.Time)
	}
	tag := new(big.Rat).SetFrac(new(big.Int).SetUint64(reserved), big.NewInt(int64(weight)))
	return c.reaches(k, tag.Sub(k.Finish, tag), weight, rate)
}

// SetRate sets the rate, in bytes/s and above 0. Callers call it before Advance. If the new rate is lower, the class pays
// FormerBytes of what it owes in the time of the old rate, and the rest at the new one. The class stands for all classes.
func (c *Clock) SetRate(id uint64, weight uint32, rate uint64) {
	if c.Rate != 0 && rate < c.Rate {
		then, now := c.Paid(id, weight, c.Rate), c.Paid(id, weight, rate)
		gain, most := now.Sub(now, then), ratOf(FormerBytes(rate))
		most = new(big.Rat).Sub(timeFor(most, rate), timeFor(most, c.Rate))
		if gain.Cmp(most) > 0 {
			gain = most
		}
		c.Time.Sub(c.Time, gain)
	}
	c.Rate = rate
}

// FormerBytes is how much still counts at a former rate, after it was lowered to that one.
func FormerBytes(rate uint64) uint64 { return min(max(rate/10, 65536), 1<<30) }

// Charge charges bytes to the class. The caller has called Advance. A class that had nothing to send begins in the
// past, by at most its part of burst bytes. All classes pay for the part in the past for which the class did not count
// as backlogged: the clock's time advances. The weight is 1..10000, the rate is in bytes/s and above 0.
func (c *Clock) Charge(id uint64, weight uint32, bytes, rate, burst uint64) {
	k, v := c.class(id), c.Virtual
	counted := new(big.Rat).Set(k.Until)
	if k.Finish.Cmp(counted) > 0 {
		counted.Set(k.Finish)
	}
	if counted.Cmp(v) > 0 {
		counted.Set(v)
	}
	active := max(c.ActiveWeight(), uint64(weight))
	credit := new(big.Rat).Quo(ratOf(burst), ratOf(active))
	start := new(big.Rat).Set(k.Finish)
	if earliest := credit.Sub(v, credit); start.Cmp(earliest) < 0 {
		start.Set(earliest)
	}
	k.Finish = new(big.Rat).Add(start, new(big.Rat).Quo(ratOf(bytes), ratOf(uint64(weight))))

	from, to := start, v
	if counted.Cmp(from) > 0 {
		from = counted
	}
	if k.Finish.Cmp(to) < 0 {
		to = k.Finish
	}
	if unpaid := new(big.Rat).Sub(to, from); unpaid.Sign() > 0 {
		c.Time.Add(c.Time, timeFor(unpaid.Mul(unpaid, ratOf(uint64(weight))), rate))
	}
	k.Weight, k.Until = 0, counted
	if k.Finish.Cmp(v) > 0 {
		k.Weight, k.Until = weight, c.slotEnd(k.Finish)
	}
}

// slotEnd returns the virtual time up to which a class with that finish counts as backlogged.
func (c *Clock) slotEnd(tag *big.Rat) *big.Rat {
	if len(c.Slots) == 0 {
		return new(big.Rat).Set(tag)
	}
	for _, size := range c.Slots {
		n := floor(tag, size)
		if distance := new(big.Int).Sub(n, floor(c.Virtual, size)); distance.Cmp(big.NewInt(reach)) < 0 {
			return endOf(n, size)
		}
	}
	last := c.Slots[len(c.Slots)-1]
	n := floor(c.Virtual, last)
	return endOf(n.Add(n, big.NewInt(reach-1)), last)
}

// floor returns the number of the slot of that size that contains the tag.
func floor(tag *big.Rat, size uint64) *big.Int {
	q := new(big.Rat).Quo(tag, ratOf(size))
	return new(big.Int).Div(q.Num(), q.Denom())
}

func endOf(n *big.Int, size uint64) *big.Rat {
	end := new(big.Rat).SetInt(new(big.Int).Add(n, big.NewInt(1)))
	return end.Mul(end, ratOf(size))
}

// Departure returns when virtual time reaches the finish of the class, in ns. This is its departure in fluid fair
// queueing, if no class becomes backlogged and the classes that are done cease to be.
func (c *Clock) Departure(id uint64, rate uint64) *big.Rat {
	ahead := c.Clone()
	finish := ahead.class(id).Finish
	for ahead.Virtual.Cmp(finish) < 0 && ahead.ActiveWeight() > 0 {
		edge := ahead.firstEdge()
		if edge.Cmp(finish) > 0 {
			edge = finish
		}
		bytes := new(big.Rat).Sub(edge, ahead.Virtual)
		need := timeFor(bytes.Mul(bytes, ratOf(ahead.ActiveWeight())), rate)
		ahead.Advance(rate, 0, need.Add(need, ahead.Time))
	}
	return ahead.Time
}

// Clone returns a copy that shares nothing with the clock.
func (c *Clock) Clone() *Clock {
	out := &Clock{
		Slots: c.Slots, Time: new(big.Rat).Set(c.Time), Virtual: new(big.Rat).Set(c.Virtual),
		Rate: c.Rate, Classes: make(map[uint64]*Class, len(c.Classes)),
		Guarantees: make(map[uint64]*big.Rat, len(c.Guarantees)),
		Taken:      new(big.Rat).Set(c.Taken), TakenAt: new(big.Rat).Set(c.TakenAt),
	}
	for id, at := range c.Guarantees {
		out.Guarantees[id] = new(big.Rat).Set(at)
	}
	for id, k := range c.Classes {
		out.Classes[id] = &Class{Finish: new(big.Rat).Set(k.Finish), Until: new(big.Rat).Set(k.Until), Weight: k.Weight}
	}
	return out
}
