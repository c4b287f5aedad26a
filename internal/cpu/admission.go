package cpu

import "slices"

// Left is the most that can still be promised to one program on so many per cent of processors, where so
// much is promised to others. A program of one thread is on one processor at a time, and moves
// too seldom to make up its share of parts of several: three of 60 per cent do not fit on two processors. What
// is more than one processor has threads, and takes whole ones first.
func Left(promised []float64, capacity float64) float64 {
	room := make([]float64, int(capacity/MostPower))
	for i := range room {
		room[i] = MostPower
	}
	sorted := slices.Clone(promised)
	slices.Sort(sorted)
	for _, p := range slices.Backward(sorted) {
		for p > 0 {
			slices.Sort(room)
			at, _ := slices.BinarySearch(room, p) // the fullest in which all of it fits
			at = min(at, len(room)-1)             // or else the emptiest
			part := min(p, room[at])
			if part <= 0 {
				return 0
			}
			room[at] -= part
			p -= part
		}
	}
	// whole processors, and what is left of one more
	left, most := 0.0, 0.0
	for _, r := range room {
		if r == MostPower {
			left += r
		} else {
			most = max(most, r)
		}
	}
	return left + most
}
