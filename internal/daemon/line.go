package daemon

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

const (
	mostOverhead = 255
	mostLeast    = 1500
)

// line is the link-layer overhead of a packet on a link's line.
type line struct {
	Overhead uint8  `json:"overhead_bytes,omitempty"`
	Least    uint16 `json:"least_bytes,omitempty"`
	ATM      bool   `json:"atm,omitempty"`
}

func lineOf(l api.Line) line {
	return line{Overhead: uint8(l.OverheadBytes), Least: uint16(l.LeastBytes), ATM: l.ATM}
}

func (l line) api() *api.Line {
	if l == (line{}) {
		return nil
	}
	return &api.Line{OverheadBytes: uint32(l.Overhead), LeastBytes: uint32(l.Least), ATM: l.ATM}
}

func (l line) enforced() enforce.Line {
	return enforce.Line{OverheadBytes: l.Overhead, LeastBytes: l.Least, Cells: l.ATM}
}

// checkLine refuses impossible overheads, subjects that are not links, and callers other than administrators.
func checkLine(by auth.Actor, req api.SetRequest) error {
	l := req.Wish.Line
	bad := func(format string, args ...any) error {
		return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: "netnice link DEVICE --overhead 30 --mpu 64"}
	}
	switch {
	case l == nil:
		return nil
	case req.Subject.Kind != api.KindLink:
		return bad("%s is no link, whose line could add to a packet", req.Subject)
	case l.OverheadBytes > mostOverhead:
		return bad("an overhead of %d bytes a packet: want at most %d", l.OverheadBytes, mostOverhead)
	case l.LeastBytes > mostLeast:
		return bad("%d bytes at least for a packet: want at most %d", l.LeastBytes, mostLeast)
	}
	return auth.Check(by, auth.Set, auth.Target{Subject: req.Subject, Kind: enforce.KindLink, Wish: req.Wish})
}
