package limit

import (
	"math/big"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// At most 95% of a limit may be guaranteed: the rest is for those without a guarantee.
const (
	guaranteed   = 95 // of 100
	guaranteedOf = 100
)

// MostGuaranteed returns how much of a limit may be guaranteed, in bytes/s.
func MostGuaranteed(rate uint64) uint64 { return PartOf(rate, guaranteed, guaranteedOf) }

// PartOf returns rate * part / whole.
func PartOf(rate, part, whole uint64) uint64 {
	v := new(big.Int).SetUint64(rate)
	v.Mul(v, new(big.Int).SetUint64(part))
	return v.Div(v, new(big.Int).SetUint64(whole)).Uint64()
}

// DirectionName returns a direction as the API names it.
func DirectionName(d enforce.Direction) api.Direction {
	switch d {
	case enforce.Up:
		return api.Up
	case enforce.Down:
		return api.Down
	}
	return api.Total
}
