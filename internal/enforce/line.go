package enforce

import "math"

// Line describes the bytes that a device's line carries for a packet beside its IP bytes.
type Line struct {
	OverheadBytes uint8
	LeastBytes    uint16 // smallest size of a packet on the line, overhead included
	Cells         bool   // ATM cells
}

// Bytes returns the bytes that a line carries for a packet of this number of IP bytes. The number may also be the
// mean of packets whose sizes differ. The last cells of such packets are half empty in the mean.
func (l Line) Bytes(packet float64) float64 {
	const payload, cell = 48, 53
	at := max(packet+float64(l.OverheadBytes), float64(l.LeastBytes))
	if l.Cells {
		at = math.Ceil(at/payload) * cell
	}
	return at
}
