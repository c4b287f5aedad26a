package cpu

import "slices"

// Left returns the largest share that can still be promised to one program, given the shares promised to others.
// Shares and capacity are in per cent of one processor. A program of one thread is on one processor at a time, and
// moves too seldom to make up its share from parts of several: three programs of 60 per cent do not fit on two
// processors. A program with a share of more than one processor has threads, and takes whole processors first.
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
			at, _ := slices.BinarySearch(room, p) // the fullest processor on which all of p fits
			at = min(at, len(room)-1)             // or else the emptiest one
			part := min(p, room[at])
			if part <= 0 {
				return 0
			}
			room[at] -= part
			p -= part
		}
	}
	// The result is all whole processors, and the largest rest of one more.
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
