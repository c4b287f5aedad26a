package limit

import (
	"fmt"

	"github.com/netnice/netnice/internal/units"
)

// Bound refuses values that no request may have, for limits that come from a file. Rates had no bound in earlier
// releases: a rate above the highest becomes the highest.
func (l *Limit) Bound() error {
	for _, r := range Rates {
		rate := r.Of(l)
		*rate = min(*rate, units.MaxRate)
	}
	switch {
	case l.Weight > MaxWeight:
		return fmt.Errorf("the weight %d is out of range", l.Weight)
	case l.BurstNS > MaxBurstNS:
		return fmt.Errorf("the burst of %d ns is out of range", l.BurstNS)
	case l.DSCP > MaxDSCP+1:
		return fmt.Errorf("the DSCP %d is out of range", l.DSCP-1)
	case l.Line.Least > MaxLeast:
		return fmt.Errorf("%d bytes at least for a packet are out of range", l.Line.Least)
	case l.Reserve != Slice{} && !l.Reserve.Valid():
		return fmt.Errorf("a slice of %d ns in each %d ns is out of range", l.Reserve.SliceNS, l.Reserve.PeriodNS)
	case l.Grant.PPM > WholePPM:
		return fmt.Errorf("a grant of %d millionths is out of range", l.Grant.PPM)
	}
	return nil
}
