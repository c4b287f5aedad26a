package cli

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

const powerHelp = `N from 1 to 100 is per cent of a processor, for all of their threads together, and beyond that of
several (250: two and a half): no more than that, and set by an administrator also no less, whatever
else wants the processors. N from -255 to -1 is a priority below the ordinary, as nice 19 to 0, evenly:
-255 has next to nothing where others want all. 0 is the ordinary priority: it takes back what was set.`

const smoothHelp = `How it is kept is the administrator's to choose, for an N up to 100. With --slots 1ms they run for
1 ms and then stand still for as many slots as make N of 100: 25 is one of four, 75 three of four. No
process is stopped for that, and if netnice is killed the ceiling stays, in the kernel's measure. With
--strict a process of one thread has N per cent by the kernel's deadline scheduler: before all others of
the machine, whatever their priority, and no more than 95% of the processors for all that have that.
While it has more threads, or children, they all have the ceiling, as without it.`

// smoothFlags are the flags for the way in which a CPU share is kept.
type smoothFlags struct {
	slots  optional[uint64]
	strict bool
}

func (f *smoothFlags) add(cmd *cobra.Command) {
	f.slots = optional[uint64]{parse: units.ParseDuration, kind: "time"}
	cmd.Flags().Var(&f.slots, "slots", "run and stand still by so much at a time, 1ms to 10ms")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "by the deadline scheduler, for a process of one thread")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "slot" {
			name = "slots"
		}
		return pflag.NormalizedName(name)
	})
}

func (f *smoothFlags) said() bool { return f.slots.value != nil || f.strict }

func (f *smoothFlags) put(on *api.PowerRequest) {
	on.Strict = f.strict
	if f.slots.value != nil {
		on.SlotNS = *f.slots.value
	}
}

func (a *App) power() *cobra.Command {
	var asJSON, dryRun bool
	var smooth smoothFlags
	cmd := &cobra.Command{
		Use:   "power [PID [N [--slots TIME | --strict]]]",
		Short: "Give a running process a share of the processors",
		Long: `Say what a running process gets of the processors, with its threads, its running descendants and
those to come.

` + powerHelp + `

The share is kept in every 20 ms (below 20, with 4 ms of running in every 400/N ms). It ends with
the last of the processes, and stays when the daemon is killed. With PID only, print what holds; without,
list all that have a share.

` + smoothHelp + `

A share of the processors is a poor knob for bandwidth: on today's machines 1% of a processor
may send 50 to 100 Mbit/s. To limit that: netnice set.`,
		Example: "  netnice power 4711 25\n  netnice power 4711 -100\n  netnice power 4711 0\n  netnice power 4711 40 --slots 1ms\n  netnice power",
		Args:    between(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 && smooth.said() {
				return fail("netnice power PID 40 --slots 1ms", "--slots and --strict say how a power is kept, and none is given")
			}
			if len(args) == 0 {
				return a.listPowers(cmd.Context(), asJSON)
			}
			pid, err := a.onePID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return a.showPower(cmd.Context(), pid, asJSON)
			}
			n, err := parsePower(args[1], "netnice power "+args[0]+" 25")
			if err != nil {
				return err
			}
			request := api.PowerRequest{PID: pid, Power: n, DryRun: dryRun}
			smooth.put(&request)
			return a.setPower(cmd.Context(), request, asJSON)
		},
	}
	cmd.ValidArgsFunction = a.completePID(false)
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	smooth.add(cmd)
	return cmd
}

func (a *App) exec() *cobra.Command {
	var smooth smoothFlags
	cmd := &cobra.Command{
		Use:   "exec [--slots TIME | --strict] N CMD [ARGS]",
		Short: "Run a command with a share of the processors",
		Long: `Run a command, and whatever it starts, with a share of the processors. netnice becomes the command,
as with netnice run.

` + powerHelp + `

` + smoothHelp,
		Example: "  netnice exec 30 make -j8\n  netnice exec -255 updatedb\n  sudo netnice exec --slots 1ms 50 ./sender",
		RunE: func(cmd *cobra.Command, args []string) error {
			const usage = "netnice exec 30 CMD ARGS"
			if len(args) < 2 {
				return fail(usage, "exec needs a power and a command")
			}
			n, err := parsePower(args[0], usage)
			if err != nil {
				return err
			}
			path, err := a.System.LookPath(args[1])
			if err != nil {
				return cannotRun(args[1], err)
			}
			request := api.PowerRequest{PID: a.System.PID(), Power: n}
			smooth.put(&request)
			response, err := a.sendPower(cmd.Context(), request)
			if err != nil {
				return err
			}
			if n != 0 {
				a.warn(response.Warnings)
			}
			return cannotRun(args[1], a.System.Exec(path, args[1:]))
		},
	}
	smooth.add(cmd)
	cmd.Flags().SetInterspersed(false) // flags behind CMD are for CMD
	return cmd
}

// aPriority marks a negative number, which is no flag.
const aPriority = "\x00"

var negative = regexp.MustCompile(`^-[0-9]+$`)

// markPriorities marks negative numbers among the words of power, and a negative first word of exec.
func markPriorities(args []string) []string {
	out := append([]string{}, args...)
	verb := 0
	for verb < len(out) && strings.HasPrefix(out[verb], "-") { // flags of every command
		if out[verb] == "--socket" || out[verb] == "--units" {
			verb++
		}
		verb++
	}
	first, last := verb+1, len(out)
	switch {
	case verb == len(out):
		return out
	case out[verb] == "exec":
		for first < len(out) && strings.HasPrefix(out[first], "--") {
			if out[first] == "--slots" || out[first] == "--slot" {
				first++
			}
			first++
		}
		last = min(first+1, last)
	case out[verb] != "power":
		return out
	}
	for i := first; i < last; i++ {
		if negative.MatchString(out[i]) {
			out[i] = aPriority + out[i]
		}
	}
	return out
}

// parsePower reads -255 and up. The daemon knows the number of processors, and refuses too much. Usage is a command
// with a power, for the remedy.
func parsePower(text, usage string) (int, error) {
	text = strings.TrimPrefix(text, aPriority)
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil {
		return 0, fail(usage, "%q is no power: 1 to 100 per cent of a processor, more of several; -255 to -1 a priority, 0 to lift it", text)
	}
	return n, nil
}

func (a *App) setPower(ctx context.Context, request api.PowerRequest, asJSON bool) error {
	response, err := a.sendPower(ctx, request)
	switch {
	case err != nil:
		return err
	case response == nil:
		return nil // a dry run without a daemon
	case asJSON:
		return writeJSON(a.Out, response)
	}
	a.warn(response.Warnings)
	would := ""
	if request.DryRun {
		would = "would be: "
	}
	if response.Power == nil {
		fmt.Fprintf(a.Out, "%sprocess %d has the ordinary priority\n", would, request.PID)
		return nil
	}
	fmt.Fprintf(a.Out, "%sprocess %d (%s): %s\n", would, response.Power.PID, printable(response.Power.Name), a.powerText(response.Power))
	a.warn(noDeadline(response.Power))
	return nil
}

// noDeadline returns the reason for which a requested deadline is not in force.
func noDeadline(p *api.Power) []string {
	if p.NoDeadline == "" {
		return nil
	}
	return []string{fmt.Sprintf("it has no deadline, but the ceiling that others have: %s; that is looked at again each second", printable(p.NoDeadline))}
}

// sendPower makes the checks that need no daemon, and asks the daemon. It returns nil for a dry run without a daemon.
func (a *App) sendPower(ctx context.Context, request api.PowerRequest) (response *api.PowerResponse, err error) {
	subject := pidSubject(request.PID)
	if request.Power != 0 || request.SliceNS != 0 {
		if _, err := a.present(subject); err != nil {
			return nil, err
		}
	}
	call := func(ctx context.Context, c *client.Client) (err error) {
		answer, err := c.SetPower(ctx, request)
		if err == nil {
			response = answer
		}
		return err
	}
	if request.DryRun {
		err = a.rehearse(ctx, call, subject)
	} else {
		err = a.write(ctx, call)
	}
	return response, err
}

// showPower prints the share of a process.
func (a *App) showPower(ctx context.Context, pid int, asJSON bool) error {
	p, err := a.powerOf(ctx, pid)
	switch {
	case err != nil:
		return err
	case p != nil && asJSON:
		return writeJSON(a.Out, p)
	case p != nil:
		fmt.Fprintf(a.Out, "process %d (%s): %s\n", p.PID, printable(p.Name), a.powerText(p))
		if p.Auto != nil {
			fmt.Fprintf(a.Out, "  %s\n", a.autoText(p))
		}
		a.warn(noDeadline(p))
		return nil
	}
	name, err := a.present(pidSubject(pid))
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(a.Out, api.Power{PID: pid, Name: name})
	}
	fmt.Fprintf(a.Out, "process %d has no power of its own: the ordinary priority\n", pid)
	return nil
}

// listPowers prints the shares of all processes that have one.
func (a *App) listPowers(ctx context.Context, asJSON bool) error {
	var list *api.PowerList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.Powers(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.Out, list)
	}
	t := table{columns: []column{{title: "PID", right: true}, {title: "COMMAND", elastic: true}, {title: "POWER"}, {title: "USED", right: true}, {title: "PROCS", right: true, drop: 1}, {title: "BY", drop: 2}}}
	for i := range list.Powers {
		p := &list.Powers[i]
		t.rows = append(t.rows, []string{
			strconv.Itoa(p.PID), printable(p.Name), a.powerText(p), usedText(p),
			strconv.Itoa(p.Processes), printable(strings.Join(p.Owners, ", ")),
		})
	}
	width, _ := a.System.Terminal(a.Out)
	fmt.Fprint(a.Out, t.render(width))
	fmt.Fprintf(a.Out, "guaranteed: %.4g of %.4g per cent of a processor\n", list.GuaranteedPercent, list.CapacityPercent)
	return nil
}

// usedText prints the part of one processor that was used.
func usedText(p *api.Power) string { return strconv.FormatFloat(p.Percent, 'f', 1, 64) + "%" }

func (a *App) powerText(p *api.Power) string {
	var text string
	switch {
	case p.Auto != nil:
		text = fmt.Sprintf("%.4g%% of a processor for %s", float64(p.SliceNS)/float64(p.PeriodNS)*100, units.FormatRate(p.Auto.RateBytesPerSec, a.units))
	case p.Reserved:
		text = fmt.Sprintf("%s of the processors in each %s", units.FormatDuration(p.SliceNS), units.FormatDuration(p.PeriodNS))
		if p.Extra {
			text += " at least, and a share of the rest"
		}
	case p.Power > 0:
		text = fmt.Sprintf("%d%% of a processor", p.Power)
	default:
		text = fmt.Sprintf("priority %d", p.Power)
		if p.SliceNS != 0 {
			text += fmt.Sprintf(", at most %.4g%% of a processor", float64(p.SliceNS)/float64(p.PeriodNS)*100)
		}
	}
	switch {
	case p.SlotNS != 0:
		text += " in slots of " + units.FormatDuration(p.SlotNS)
	case p.Deadline:
		text += " by a deadline"
	}
	if p.Guaranteed {
		return text + ", guaranteed"
	}
	if p.SliceNS != 0 && p.Power > 0 {
		text += " at most"
	}
	return text
}
