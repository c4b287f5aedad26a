package cli

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) reserve() *cobra.Command {
	var subject subjectFlags
	var f reserveFlags
	cmd := &cobra.Command{
		Use:   "reserve SUBJECT --link DEVICE --period TIME --slice TIME [--extra] [--for TIME] | --pid P --cpu-period TIME --cpu-slice TIME [--cpu-extra] | --pid P --rate RATE --cpu auto | SUBJECT --release | --user NAME --link DEVICE --grant PERCENT",
		Short: "Reserve a slice of a link's time, or of the processors', in each period",
		Long: `Reserve what a link carries in a slice of time, anew in each period: it is there for the
subject as the period begins, whatever others send. What is not used of it is lost to the
subject, and others have it. With --extra the subject has its part of what is left, too;
without, no more than the slice by that link.

The link needs a limit on what is sent, of which 95% may be reserved or guaranteed: netnice
link DEVICE --up RATE. A slice of 2.4ms in each 50ms of a link of 10mbit are two packets of
1500 bytes every 50 ms. Periods are from 1ms to 1s. With --for the reservation ends by itself.

Reserving is the administrator's, who can grant users a part of a link: these may then reserve
so much of it in all, for their own processes by this command, and for connections by a socket
option, NETNICE_RESERVE (netnice(3)). A grant keeps nothing free.

With --cpu-slice a process and its descendants have so much time of the processors in each
--cpu-period, whatever else wants them, and no more: of all processors together; with --cpu-extra
no less, and of what is left as much as another of ordinary priority. So much is refused as is not
left: netnice power lists it. A link and processors may be said at once.

With --rate and --cpu auto a process is to send at that rate whatever else wants the processors:
it is limited to the rate, and guaranteed it of every limit around; what it needs of the
processors for each Mbit/s is measured as it sends, reserved with a margin, watched and corrected.

--release gives back all of these.

` + subjectHelp,
		Example: "  sudo netnice reserve --pid 4711 --link eth0 --period 10ms --slice 2ms --extra\n  sudo netnice reserve --pid 4711 --cpu-period 20ms --cpu-slice 5ms\n  sudo netnice reserve --pid 4711 --rate 400mbit --cpu auto\n  sudo netnice reserve --pid 4711 --release",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := subject.subject(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			return a.runReserve(cmd.Context(), s, &f)
		},
	}
	subject.addWho(a, cmd)
	f.add(a, cmd)
	return cmd
}

// reserveFlags are the flags for reservations of a link and of the processors.
type reserveFlags struct {
	link                           string
	period, slice, lasts           optional[uint64]
	processors                     cpuFlags
	grant                          optional[uint32]
	extra, release, asJSON, dryRun bool
}

func (f *reserveFlags) add(a *App, cmd *cobra.Command) {
	f.period = optional[uint64]{parse: units.ParseDuration, kind: "time"}
	f.slice, f.lasts = f.period, f.period
	f.grant = optional[uint32]{parse: parsePart, kind: "percent"}
	flags := cmd.Flags()
	flags.StringVar(&f.link, "link", "", "the network `device` whose time it is")
	_ = cmd.RegisterFlagCompletionFunc("link", a.completeValue(api.KindLink))
	flags.Var(&f.period, "period", "in each of which the slice is given")
	flags.Var(&f.slice, "slice", "how much of it")
	flags.BoolVar(&f.extra, "extra", false, "a part of what is left, too")
	f.processors.add(cmd)
	flags.Var(&f.lasts, "for", "how long it stands; until it is released, if it is not said")
	flags.Var(&f.grant, "grant", "so much of the link a user may reserve in all; 0 = nothing")
	flags.BoolVar(&f.release, "release", false, "give the reservation back")
	jsonFlag(cmd, &f.asJSON)
	dryRunFlag(cmd, &f.dryRun)
}

// hasSlice reports whether a flag describes a slice of a link's time.
func (f *reserveFlags) hasSlice() bool {
	return f.period.value != nil || f.slice.value != nil || f.lasts.value != nil || f.extra
}

// runReserve reserves time of the processors, of a link, or of both; or it grants a part of a link to a user.
func (a *App) runReserve(ctx context.Context, s api.Subject, f *reserveFlags) error {
	if f.grant.value != nil {
		return a.grant(ctx, s, f)
	}
	if f.processors.said() || f.release && s.Kind == api.KindPID {
		done, err := a.reserveCPU(ctx, s, f.processors, f.release, f.dryRun, f.asJSON)
		ofLink := f.link != "" || f.period.value != nil || f.slice.value != nil || f.release && a.reservesLink(ctx, s)
		if err != nil || done && !ofLink {
			return err
		}
	}
	r, err := f.reservation(s)
	if err != nil {
		return err
	}
	return a.apply(ctx, api.SetRequest{Subject: s, Wish: api.Wish{Reserve: &r}, DryRun: f.dryRun}, f.asJSON)
}

// reservation returns the reservation of a link's time by the flags; the zero value releases the present one.
func (f *reserveFlags) reservation(s api.Subject) (api.Reservation, error) {
	switch {
	case f.release && f.hasSlice():
		return api.Reservation{}, fail("netnice reserve "+s.String()+" --release", "--release takes no slice")
	case f.release:
		return api.Reservation{}, nil
	case f.link == "" || f.period.value == nil || f.slice.value == nil || *f.slice.value == 0:
		return api.Reservation{}, fail("netnice reserve "+s.String()+" --link eth0 --period 10ms --slice 2ms", "a reservation needs a link, a period and a slice")
	}
	r := api.Reservation{Link: linkHere(api.Subject{Kind: api.KindLink, ID: f.link}).ID, Extra: f.extra, PeriodNS: *f.period.value, SliceNS: *f.slice.value}
	if f.lasts.value != nil {
		r.ForNS = *f.lasts.value
	}
	return r, nil
}

// grant sets the share of a link that a user may reserve.
func (a *App) grant(ctx context.Context, s api.Subject, f *reserveFlags) error {
	const usage = "netnice reserve --user NAME --link eth0 --grant 20%"
	switch {
	case f.hasSlice() || f.release:
		return fail(usage, "--grant takes no slice")
	case s.Kind != api.KindUser:
		return fail(usage, "%s is no user", s)
	case f.link == "":
		return fail("netnice reserve "+s.String()+" --link eth0 --grant 20%", "a grant needs a link")
	}
	g := api.Grant{Link: linkHere(api.Subject{Kind: api.KindLink, ID: f.link}).ID, PPM: *f.grant.value}
	return a.apply(ctx, api.SetRequest{Subject: s, Wish: api.Wish{Grant: &g}, DryRun: f.dryRun}, f.asJSON)
}

// parsePart reads a part of a whole in percent, such as 20% or 2.5, as millionths.
func parsePart(text string) (uint32, error) {
	part, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(part >= 0 && part <= 100) {
		return 0, fmt.Errorf("%q: want 0 to 100 percent, such as 20%%", text)
	}
	return uint32(math.Round(part * onePercent)), nil
}
