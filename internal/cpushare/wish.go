package cpushare

import (
	"fmt"
	"math"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// wish is one owner's request: a power or a reservation. The zero value requests nothing.
type wish struct {
	Power    int    `json:"power,omitempty"`
	PeriodNS uint64 `json:"period_ns,omitempty"`
	SliceNS  uint64 `json:"slice_ns,omitempty"`
	Extra    bool   `json:"extra,omitempty"` // and a share of the rest: no ceiling
	Auto     auto   `json:"auto,omitzero"`   // how the slice is found; administrators only
	// SlotNS and Strict say how a power is kept: in slots of that length, or by the kernel's deadline scheduler where a
	// deadline fits.
	SlotNS uint64 `json:"slot_ns,omitempty"`
	Strict bool   `json:"strict,omitempty"`
}

// percent returns the requested amount in per cent of one processor; 0 = a priority.
func (w wish) percent() float64 {
	if w.SliceNS != 0 {
		return float64(w.SliceNS) / float64(w.PeriodNS) * 100
	}
	return float64(max(w.Power, 0))
}

// ceiling reports whether the requested CPU share is an upper bound: an amount without a share of the rest.
func (w wish) ceiling() bool { return w.percent() > 0 && !w.Extra }

func (w wish) share() cpu.Share {
	switch {
	case w.SliceNS != 0:
		return cpu.Share{SliceNS: w.SliceNS, PeriodNS: w.PeriodNS, Weight: cpu.OrdinaryWeight}
	case w.SlotNS != 0:
		return cpu.Slots(w.Power, time.Duration(w.SlotNS))
	}
	return cpu.Ceiling(w.Power)
}

// holding returns the lowest of the owners' ceilings, if there is one, and the lowest of their priorities.
func (p *entry) holding() (ceiling wish, priority int) {
	for _, w := range p.Wishes {
		if w.ceiling() && (ceiling == wish{} || w.percent() < ceiling.percent()) {
			ceiling = w
		}
		priority = min(priority, w.Power)
	}
	return ceiling, priority
}

// power returns the power in force as one number: the priority if there is one, else the ceiling, else the guarantee.
func (p *entry) power() int {
	ceiling, priority := p.holding()
	at := ceiling.percent()
	if at == 0 {
		at = p.guaranteed()
	}
	if at > 0 && priority == 0 {
		return max(int(math.Round(at)), 1)
	}
	return priority
}

// guaranteed returns the administrator's guarantee, in per cent of one processor. A negative priority cancels it, and a
// lower ceiling bounds it.
func (p *entry) guaranteed() float64 {
	ceiling, priority := p.holding()
	promised := p.Wishes[enforce.OwnerAdmin].percent()
	switch {
	case priority < 0:
		return 0
	case ceiling == wish{}:
		return promised
	}
	return min(promised, ceiling.percent())
}

// reserved reports whether a reservation is in force.
func (p *entry) reserved() bool {
	ceiling, _ := p.holding()
	return ceiling.SliceNS != 0 || ceiling == wish{} && p.Wishes[enforce.OwnerAdmin].Extra
}

// share returns the share that the group has to have. A process with a guarantee runs first, up to the ceiling. The
// ceiling keeps it from more than was promised. Without a ceiling the weight alone enforces the guarantee.
func (p *entry) share() cpu.Share {
	ceiling, priority := p.holding()
	s := cpu.Priority(priority)
	if ceiling != (wish{}) {
		weight := s.Weight
		s = ceiling.share()
		s.Weight = weight
	}
	switch promised := p.guaranteed(); {
	case promised > 0 && ceiling == wish{}:
		s.Weight = p.extra.weightFor(promised)
	case promised > 0:
		s.Weight = cpu.MostWeight
	}
	return s
}

// check refuses a request that makes no sense by itself.
func check(req api.PowerRequest) error {
	switch {
	case req.AutoBytesPerSec != 0 && (req.SliceNS != 0 || req.Power != 0):
		return refused(fmt.Sprintf("netnice reserve --pid %d --rate 400mbit --cpu auto", req.PID), "a reservation for a rate is neither a slice nor a power")
	case req.Extra && req.SliceNS == 0:
		return refused(sliceUse(req), "a share of the rest goes with a reservation")
	}
	if err := checkSlots(req); err != nil || req.AutoBytesPerSec != 0 {
		return err
	}
	return checkAmount(req)
}

// sliceUse returns a command that reserves a slice for the process of a request.
func sliceUse(req api.PowerRequest) string {
	return sliceCommand(req.PID, 20*time.Millisecond, 5*time.Millisecond, req.Extra)
}

// checkSlots checks how a power is to be kept.
func checkSlots(req api.PowerRequest) error {
	use := fmt.Sprintf("netnice power %d 40 --slots 1ms", req.PID)
	switch {
	case (req.SlotNS != 0 || req.Strict) && (req.Power <= 0 || req.Power > cpu.MostPower):
		return refused(use, fmt.Sprintf("slots and deadlines are for a power from 1 to %d", cpu.MostPower))
	case req.SlotNS != 0 && req.Strict:
		return refused(use, "slots are kept by a quota, a deadline by the scheduler: not both")
	case req.SlotNS != 0 && (req.SlotNS < uint64(cpu.LeastSlot) || req.SlotNS > uint64(cpu.MostSlot)):
		return refused(use, fmt.Sprintf("a slot lasts %s to %s", cpu.LeastSlot, cpu.MostSlot))
	}
	return nil
}

// checkAmount checks the bounds of a power, or of a slice and its period.
func checkAmount(req api.PowerRequest) error {
	most := cpu.MostPower * cpu.Online()
	switch {
	case req.SliceNS != 0 && req.Power != 0:
		return refused(sliceUse(req), "a reservation is not a power too")
	case req.PeriodNS != 0 && req.SliceNS == 0:
		return refused(sliceUse(req), "a reservation needs a slice")
	case req.SliceNS == 0 && (req.Power < cpu.LeastPower || req.Power > most):
		return refused(fmt.Sprintf("netnice power %d %d", req.PID, max(cpu.LeastPower, min(req.Power, most))),
			fmt.Sprintf("a power of %d is out of range: 1 to 100 per cent of a processor, up to %d of all that are here; -255 to -1 a priority, 0 to lift it", req.Power, most))
	case req.SliceNS != 0 && (req.PeriodNS < limit.MinPeriodNS || req.PeriodNS > limit.MaxPeriodNS):
		return refused(sliceUse(req), "a period of the processors lasts 1ms to 1s")
	case req.SliceNS != 0 && (req.SliceNS < uint64(time.Millisecond) || req.SliceNS > req.PeriodNS*uint64(cpu.Online())):
		return refused(sliceUse(req), fmt.Sprintf("a slice lasts 1ms up to the period, on each of %d processors", cpu.Online()))
	}
	return nil
}

// refused refuses a request; hint is a command that would be accepted.
func refused(hint, text string) error {
	return &api.Error{Code: api.CodeBadRequest, Message: text, Hint: hint}
}
