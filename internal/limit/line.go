package limit

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// The bounds of a line's overhead and of its smallest packet, in bytes.
const (
	MaxOverhead = 255
	MaxLeast    = 1500
)

// Line is the link-layer overhead of a packet on a link's line. The zero value means IP packets alone.
type Line struct {
	Overhead uint8  `json:"overhead_bytes,omitempty"`
	Least    uint16 `json:"least_bytes,omitempty"`
	ATM      bool   `json:"atm,omitempty"`
}

// LineOf returns the line of a request.
func LineOf(l api.Line) Line {
	return Line{Overhead: uint8(l.OverheadBytes), Least: uint16(l.LeastBytes), ATM: l.ATM}
}

// API returns the line as answers show it, nil for none.
func (l Line) API() *api.Line {
	if l == (Line{}) {
		return nil
	}
	return &api.Line{OverheadBytes: uint32(l.Overhead), LeastBytes: uint32(l.Least), ATM: l.ATM}
}

// Enforced returns the line for the kernel side.
func (l Line) Enforced() enforce.Line {
	return enforce.Line{OverheadBytes: l.Overhead, LeastBytes: l.Least, Cells: l.ATM}
}
