package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

// cpuFlags are the flags for a reservation of the processors.
type cpuFlags struct {
	period, slice, rate optional[uint64]
	how                 string
	extra               bool
}

func (f *cpuFlags) add(cmd *cobra.Command) {
	f.period = optional[uint64]{parse: units.ParseDuration, kind: "time"}
	f.slice = f.period
	f.rate = optional[uint64]{parse: units.ParseRate, kind: kindRate}
	flags := cmd.Flags()
	flags.Var(&f.period, "cpu-period", "in each of which the processors' slice is given")
	flags.Var(&f.slice, "cpu-slice", "so much time of the processors")
	flags.BoolVar(&f.extra, "cpu-extra", false, "of what is left of the processors a share, too")
	flags.Var(&f.rate, "rate", "what it is to send, with --cpu auto")
	completeRates(cmd, "rate")
	flags.StringVar(&f.how, "cpu", "", "`auto`: as much of the processors as the rate needs")
}

func (f *cpuFlags) said() bool {
	return f.period.value != nil || f.slice.value != nil || f.rate.value != nil || f.how != "" || f.extra
}

// reserveCPU reserves time of the processors, or releases a reservation. Done is false if there was no reservation of
// the processors to release.
func (a *App) reserveCPU(ctx context.Context, s api.Subject, f cpuFlags, release, dryRun, asJSON bool) (done bool, err error) {
	const usage = "netnice reserve --pid P --cpu-period 20ms --cpu-slice 5ms"
	const usageAuto = "netnice reserve --pid P --rate 400mbit --cpu auto"
	if s.Kind != api.KindPID {
		return false, fail(usage, "processors' time is reserved for a process: %s is none", s)
	}
	request := api.PowerRequest{DryRun: dryRun}
	if request.PID, err = parsePID(s.ID); err != nil {
		return false, err
	}
	switch {
	case release && f.said():
		return false, fail("netnice reserve "+s.String()+" --release", "--release takes no slice")
	case release:
		had, err := a.releaseRate(ctx, s, request.PID, dryRun)
		if err != nil || !had {
			return false, err
		}
	case f.rate.value != nil || f.how != "":
		if !f.saysRate() {
			return false, fail(usageAuto, "--rate and --cpu auto go together, without a slice of the processors")
		}
		request.AutoBytesPerSec = *f.rate.value
		return true, a.reserveFor(ctx, s, request, asJSON)
	case f.period.value == nil || f.slice.value == nil || *f.slice.value == 0:
		return false, fail(usage, "a reservation of the processors needs --cpu-period and --cpu-slice")
	default:
		request.PeriodNS, request.SliceNS, request.Extra = *f.period.value, *f.slice.value, f.extra
	}
	return true, a.setPower(ctx, request, asJSON)
}

// saysRate reports whether the flags reserve for a rate, and nothing else.
func (f *cpuFlags) saysRate() bool {
	return f.rate.value != nil && *f.rate.value != 0 && f.how == "auto" && f.period.value == nil && f.slice.value == nil && !f.extra
}

// releaseRate reports whether a process has a reservation of the processors. If that is one for a rate, it lifts the
// limits on sending that belong to it.
func (a *App) releaseRate(ctx context.Context, s api.Subject, pid int, dryRun bool) (had bool, err error) {
	p, err := a.powerOf(ctx, pid)
	if err != nil || p == nil || !p.Reserved {
		return false, err
	}
	if p.Auto != nil && !dryRun {
		_, err = a.send(ctx, api.SetRequest{Subject: s, Wish: rateWish(0)})
	}
	return true, err
}

// rateWish returns the limits on sending that --rate means.
func rateWish(rate uint64) api.Wish { return api.Wish{UpBytesPerSec: &rate, MinBytesPerSec: &rate} }

// autoPatience is how long a command waits for the first measurement.
const autoPatience = 5 * time.Second

// reserveFor reserves as much of the processors as a process needs to send at a rate. It sets the limit and the
// guarantee first, because the daemon measures the process at that rate.
func (a *App) reserveFor(ctx context.Context, s api.Subject, request api.PowerRequest, asJSON bool) error {
	rehearsal := request
	rehearsal.DryRun = true
	if _, err := a.sendPower(ctx, rehearsal); err != nil || request.DryRun {
		if err == nil {
			err = a.setPower(ctx, request, asJSON)
		}
		return err
	}
	limited, err := a.send(ctx, api.SetRequest{Subject: s, Wish: rateWish(request.AutoBytesPerSec)})
	if err != nil {
		return err
	}
	a.warn(limited.Warnings)
	response, err := a.sendPower(ctx, request)
	if err != nil {
		return err
	}
	p := response.Power
	for until := time.Now().Add(autoPatience); p != nil && p.Auto != nil && p.Auto.PercentPerMbit == 0 && time.Now().Before(until); {
		time.Sleep(10 * pollInterval)
		if p, err = a.powerOf(ctx, request.PID); err != nil {
			return err
		}
	}
	switch {
	case p == nil || p.Auto == nil:
		return failWith(exitNoSubject, "ps -e lists those that live", "process %d has ended", request.PID)
	case asJSON:
		return writeJSON(a.Out, p)
	}
	fmt.Fprintf(a.Out, "process %d (%s): %s\n  %s\n", p.PID, printable(p.Name), a.powerText(p), a.autoText(p))
	return nil
}

// autoText describes the measurement behind a reservation.
func (a *App) autoText(p *api.Power) string {
	rate := units.FormatRate(p.Auto.RateBytesPerSec, a.units)
	if p.Auto.PercentPerMbit == 0 {
		return fmt.Sprintf("a guess for %s: it has sent nothing yet, and is measured as soon as it does", rate)
	}
	text := fmt.Sprintf("it sent %s by %.4g%% of a processor, %.4g%% for each Mbit/s; reserved are %.4g times what %s need",
		units.FormatRate(p.Auto.MeasuredBytesPerSec, a.units), p.Auto.MeasuredPercent, p.Auto.PercentPerMbit, p.Auto.Margin, rate)
	if p.Auto.Short {
		text += "; that is more than is left"
	}
	return text
}

// powerOf returns a process's share of the processors, nil if none was set.
func (a *App) powerOf(ctx context.Context, pid int) (found *api.Power, err error) {
	err = a.read(ctx, func(ctx context.Context, c *client.Client) error {
		list, err := c.Powers(ctx)
		if err != nil {
			return err
		}
		for i := range list.Powers {
			if list.Powers[i].PID == pid {
				found = &list.Powers[i]
			}
		}
		return nil
	})
	return found, err
}

// reservesLink reports whether a subject has a link's time reserved.
func (a *App) reservesLink(ctx context.Context, s api.Subject) bool {
	found := false
	err := a.read(ctx, func(ctx context.Context, c *client.Client) error {
		list, err := c.NodesFor(ctx, s)
		if err != nil {
			return err
		}
		for i := range list.Nodes {
			found = found || list.Nodes[i].Subject == s && list.Nodes[i].Reserved != nil
		}
		return nil
	})
	return err == nil && found
}
