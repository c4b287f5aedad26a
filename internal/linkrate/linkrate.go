// Package linkrate finds the limit of a network device's egress by a measurement: it lifts the limits that would hold
// the measurement back, computes the limit from the measured path, and sets the former limits again. It sends no probe
// packet itself, and knows the daemon by an interface.
package linkrate

import (
	"context"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/probe"
)

const (
	// linePart of the measured rate of the line is the link's limit. The rest of the rate drains a queue that has
	// built up in the modem. The measured rate is exact within 0.5%.
	linePart = 0.98
	// whileMeasured is a link's limit during the measurement, in bytes per second. It limits nothing, and keeps the
	// link with its reservations.
	whileMeasured = 100_000_000_000
	// quietPart is the part of the path's capacity that must be available. If other traffic leaves less, the measured
	// rate may be lower than that of the line.
	quietPart = 0.9
)

// Limits are the limits of a link, which the daemon has.
type Limits interface {
	// Nodes lists the nodes that hold for the link.
	Nodes(ctx context.Context) ([]api.Node, error)
	// Set changes the link's limits.
	Set(ctx context.Context, change api.Wish) error
}

// Link is a link whose limits on egress are lifted until Close.
type Link struct {
	limits Limits
	line   api.Line // overhead of its line
	before api.Wish // the administrator's limits on its egress
}

// Open lifts the limits on a link's egress, so that the line alone limits it.
func Open(ctx context.Context, limits Limits) (*Link, error) {
	nodes, err := limits.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	l := &Link{limits: limits}
	l.line, l.before = ofLink(nodes)
	open := uint64(whileMeasured)
	return l, l.set(ctx, &open, &open)
}

// Close sets the former limits again: all of them, or, where a new limit on egress replaces that one, the others. It
// does so also after the end of the context.
func (l *Link) Close(ctx context.Context, replaced bool) error {
	up := l.before.UpBytesPerSec
	if replaced {
		up = nil
	} else if up == nil {
		up = new(uint64)
	}
	return l.set(context.WithoutCancel(ctx), up, l.before.TotalBytesPerSec)
}

// set sets the limits on egress, except those that the link did not have. A link without any limit on egress stays as
// it is.
func (l *Link) set(ctx context.Context, up, total *uint64) error {
	if l.before == (api.Wish{}) {
		return nil
	}
	if l.before.TotalBytesPerSec == nil {
		total = nil
	}
	if up == nil && total == nil {
		return nil
	}
	return l.limits.Set(ctx, api.Wish{UpBytesPerSec: up, TotalBytesPerSec: total})
}

// Measured is the limit that follows from a measurement.
type Measured struct {
	BytesPerSec uint64
	// Busy says that other traffic used a part of the path, so the limit may be too low.
	Busy bool
}

// Limit computes the limit from the measured path. line is the overhead of the line; nil = the link's present one.
func (l *Link) Limit(path probe.Result, line *api.Line) Measured {
	if line == nil {
		line = &l.line
	}
	packet := float64(path.Size)
	rate := path.Capacity.BytesPerSec * limit.LineOf(*line).Enforced().Bytes(packet) / packet
	return Measured{
		BytesPerSec: uint64(rate * linePart),
		Busy:        !path.Available.AtLeast && path.Available.BytesPerSec < quietPart*path.Capacity.BytesPerSec,
	}
}

// ofLink returns the overhead of a link's line, and the administrator's limits on its egress.
func ofLink(nodes []api.Node) (line api.Line, limits api.Wish) {
	for _, n := range nodes {
		if n.Subject.Kind != api.KindLink || n.Line == nil && len(n.Limits) == 0 {
			continue
		}
		if n.Line != nil {
			line = *n.Line
		}
		for _, l := range n.Limits {
			rate := l.BytesPerSec
			switch {
			case l.Owner != "admin":
			case l.Direction == api.Up:
				limits.UpBytesPerSec = &rate
			case l.Direction == api.Total:
				limits.TotalBytesPerSec = &rate
			}
		}
	}
	return line, limits
}
