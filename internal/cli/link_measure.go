package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/linkrate"
	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/units"
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
	link, err := linkrate.Open(ctx, linkLimits{a, request.Subject})
	if err != nil {
		return err
	}
	defer func() {
		if failed := link.Close(ctx, err == nil); failed != nil {
			lost := &failure{message: fmt.Sprintf("%s has no limit now, to set back what it had failed: %v", device, failed), hint: "netnice link " + device + " --rate 50mbit", cause: failed}
			err = errors.Join(lost, err)
		}
	}()
	path, err := a.probePath(ctx, host, to, probeFlags{packets: "any", port: probe.DefaultPort}, probe.Options{})
	if err != nil {
		return err
	}
	if path.Capacity.AtLeast {
		return failWith(exitFailed, "netnice link "+device+" --rate 50mbit, with what the provider says", "%s carries %s at least, and more than this machine can measure", device,
			units.FormatRate(uint64(path.Capacity.BytesPerSec), a.units))
	}
	measured := link.Limit(path, request.Wish.Line)
	a.printMeasured(host, device, path, measured)
	request.Wish.UpBytesPerSec = &measured.BytesPerSec
	return a.apply(ctx, request, asJSON)
}

// printMeasured tells what was measured, beside the output of the command.
func (a *App) printMeasured(host, device string, path probe.Result, measured linkrate.Measured) {
	way := "the way there"
	if path.Kind == probe.Echo {
		way = "the narrower of both ways"
	}
	fmt.Fprintf(a.Err, "the path to %s by %s carries %s ± %s of IP packets of %d bytes (%s, %s; %s in %s)\n", printable(host), device,
		units.FormatRate(uint64(path.Capacity.BytesPerSec), a.units), units.FormatRate(uint64(path.Capacity.PlusMinus), a.units), path.Size,
		path.Kind, way, units.FormatBytes(path.SentBytes, a.units), count(path.Trains, "train"))
	if measured.Busy {
		fmt.Fprintf(a.Err, "  others used a part of it, so that may be too low: measure again while the line is quiet\n")
	}
}

// linkLimits are the limits of a link, by calls of the daemon.
type linkLimits struct {
	app  *App
	link api.Subject
}

// Nodes implements linkrate.Limits.
func (l linkLimits) Nodes(ctx context.Context) ([]api.Node, error) {
	list, err := l.app.nodesFor(ctx, l.link)
	if err != nil {
		return nil, err
	}
	return list.Nodes, nil
}

// Set implements linkrate.Limits.
func (l linkLimits) Set(ctx context.Context, change api.Wish) error {
	_, err := l.app.send(ctx, api.SetRequest{Subject: l.link, Wish: change})
	return err
}
