package units

import (
	"math"
	"strconv"
	"strings"
)

// ParseShare reads a share of 10% to 100%, as "30%", in parts of a million.
func ParseShare(text string) (ppm uint32, ok bool) {
	const least, most, perPercent = 10, 100, 10_000
	number, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !isPercent || math.IsNaN(percent) || percent < least || percent > most {
		return 0, false
	}
	return uint32(percent * perPercent), true
}
