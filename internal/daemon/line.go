package daemon

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

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
	case l.OverheadBytes > limit.MaxOverhead:
		return bad("an overhead of %d bytes a packet: want at most %d", l.OverheadBytes, limit.MaxOverhead)
	case l.LeastBytes > limit.MaxLeast:
		return bad("%d bytes at least for a packet: want at most %d", l.LeastBytes, limit.MaxLeast)
	}
	return auth.Check(by, auth.Set, auth.Target{Subject: req.Subject, Kind: enforce.KindLink, Wish: req.Wish})
}
