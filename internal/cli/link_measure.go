package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/units"
)

const (
	// measuredPart of the measured rate of the line is the link's limit. The rest of the rate drains a queue that has
	// built up in the modem. The measured rate is exact within 0.5%.
	measuredPart = 0.98
	// whileMeasured is a link's limit during the measurement, in bytes per second. It limits nothing, and keeps the
	// link with its reservations.
	whileMeasured = 100_000_000_000
	// quietPart is the part of the path's capacity that must be available. If other traffic leaves less, the measured
	// rate may be lower than that of the line.
	quietPart = 0.9
)

// measureLink measures the path to a host that is reached by the link's device, and limits the device's egress to the
// measured rate. If that fails, it sets the former limits again.
func (a *App) measureLink(ctx context.Context, device, host string, request api.SetRequest, asJSON bool) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	to, err := lookUp(ctx, host, probeFlags{})
	if err != nil {
		return err
	}
	if by, err := probe.Device(to); err != nil {
		return &failure{message: err.Error(), hint: "ip route get " + to.String(), cause: err}
	} else if by != device {
		return fail("name a host that is reached by "+device+"; ip route get ADDRESS shows by what", "%s is reached by %s, not by %s", printable(host), by, device)
	}
	line, before, err := a.linkNow(ctx, request.Subject)
	if err != nil {
		return err
	}
	if request.Wish.Line != nil {
		line = *request.Wish.Line
	}
	setBack, err := a.openLink(ctx, device, request.Subject, before)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(setBack(err == nil), err) }()
	result, err := a.probePath(ctx, host, to, probeFlags{packets: "any", port: probe.DefaultPort}, probe.Options{})
	if err != nil {
		return err
	}
	if result.Capacity.AtLeast {
		return failWith(exitFailed, "netnice link "+device+" --rate 50mbit, with what the provider says", "%s carries %s at least, and more than this machine can measure", device,
			units.FormatRate(uint64(result.Capacity.BytesPerSec), a.units))
	}
	measured := result.Capacity.BytesPerSec * float64(lineBytes(line, result.Size)) / float64(result.Size)
	rate := uint64(measured * measuredPart)
	way := "the way there"
	if result.Kind == probe.Echo {
		way = "the narrower of both ways"
	}
	fmt.Fprintf(a.Err, "the path to %s by %s carries %s ± %s of IP packets of %d bytes (%s, %s; %s in %s)\n", printable(host), device,
		units.FormatRate(uint64(result.Capacity.BytesPerSec), a.units), units.FormatRate(uint64(result.Capacity.PlusMinus), a.units), result.Size,
		result.Kind, way, units.FormatBytes(result.SentBytes, a.units), count(result.Trains, "train"))
	if left := result.Available; !left.AtLeast && left.BytesPerSec < quietPart*result.Capacity.BytesPerSec {
		fmt.Fprintf(a.Err, "  others used a part of it, so that may be too low: measure again while the line is quiet\n")
	}
	request.Wish.UpBytesPerSec = &rate
	return a.apply(ctx, request, asJSON)
}

// openLink lifts the limits on a link's egress, so that the line alone limits it. The function setBack sets them again:
// all of them, or, where a new limit on egress replaces that one, the others.
func (a *App) openLink(ctx context.Context, device string, link api.Subject, before api.Wish) (setBack func(replaced bool) error, err error) {
	if before == (api.Wish{}) {
		return func(bool) error { return nil }, nil
	}
	open := uint64(whileMeasured)
	set := func(ctx context.Context, up, total *uint64) error {
		if before.TotalBytesPerSec == nil {
			total = nil
		}
		if up == nil && total == nil {
			return nil
		}
		_, err := a.send(ctx, api.SetRequest{Subject: link, Wish: api.Wish{UpBytesPerSec: up, TotalBytesPerSec: total}})
		return err
	}
	return func(replaced bool) error {
		up := before.UpBytesPerSec
		if replaced {
			up = nil
		} else if up == nil {
			up = new(uint64)
		}
		if err := set(context.WithoutCancel(ctx), up, before.TotalBytesPerSec); err != nil {
			return &failure{message: fmt.Sprintf("%s has no limit now, to set back what it had failed: %v", device, err), hint: "netnice link " + device + " --rate 50mbit", cause: err}
		}
		return nil
	}, set(ctx, &open, &open)
}

// linkNow returns the overhead of a link's line, and the administrator's limits on its egress.
func (a *App) linkNow(ctx context.Context, link api.Subject) (line api.Line, limits api.Wish, err error) {
	list, err := a.nodesFor(ctx, link)
	if err != nil {
		return line, limits, err
	}
	for _, n := range list.Nodes {
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
	return line, limits, nil
}

// lineBytes returns the bytes that a line carries for a packet of size IP bytes, as bpf/line.h computes them.
func lineBytes(l api.Line, size int) int {
	const cell, payload = 53, 48
	n := max(size+int(l.OverheadBytes), int(l.LeastBytes))
	if l.ATM {
		n = (n + payload - 1) / payload * cell
	}
	return n
}
