package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) why() *cobra.Command {
	var asJSON bool
	fd := -1
	over := time.Second
	cmd := &cobra.Command{
		Use:   "why PID[/FD] [--fd FD] [--for TIME]",
		Short: "Say which limit holds a connection now, and by how much",
		Long: `Measure for a second what holds the connections of a process and its descendants, or
the one that a file descriptor of it is (PID/FD, --fd FD): each limit on its path from the
innermost out, who set it, how much of it all under it use, and which one binds:
whose clock decides when the connection goes on. Of a limit for a time it says how
long that still holds.

Nothing binds where the program sends no more, or where the receiver, the
network or a processor is what it waits for. Connections that fare alike are
printed together. Users may ask about their own processes.`,
		Example: "  netnice why 4711\n  netnice why 4711/5 --for 3s --json",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pidText, fdText, both := cutDescriptor(args[0])
			pid, err := a.onePID(cmd.Context(), pidText)
			if err != nil {
				return err
			}
			if both {
				if cmd.Flags().Changed("fd") {
					return fail("netnice why "+pidText+" --fd "+strconv.Itoa(fd), "the file descriptor is given twice")
				}
				if fd, err = strconv.Atoi(fdText); err != nil {
					return fail(fmt.Sprintf("ls -l /proc/%d/fd shows them", pid), "%q is no file descriptor", fdText)
				}
			}
			if fd < 0 && (both || cmd.Flags().Changed("fd")) {
				return fail(fmt.Sprintf("ls -l /proc/%d/fd shows them", pid), "%d is no file descriptor", fd)
			}
			if over < 100*time.Millisecond || over > 5*time.Second {
				return fail("write 100ms to 5s", "--for %v is out of range", over)
			}
			if pid != 1 {
				if _, err := a.present(pidSubject(pid)); err != nil {
					return err
				}
			}
			return a.explainWhy(cmd.Context(), pid, fd, over, asJSON)
		},
	}
	cmd.ValidArgsFunction = a.completePID(false)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().IntVar(&fd, "fd", -1, "only the socket that the file descriptor `FD` of it is")
	cmd.Flags().DurationVar(&over, "for", time.Second, "measure for this `time`")
	return cmd
}

// cutDescriptor cuts PID/FD; the path of a program has no descriptor behind it.
func cutDescriptor(word string) (pid, fd string, both bool) {
	if strings.HasPrefix(word, string(kindName)+":/") {
		return word, "", false
	}
	return strings.Cut(word, "/")
}

func (a *App) explainWhy(ctx context.Context, pid, fd int, over time.Duration, asJSON bool) error {
	var why *api.Why
	err := a.readFor(ctx, readTimeout+over, func(ctx context.Context, c *client.Client) (err error) {
		why, err = c.Why(ctx, pid, fd, over)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.Out, why)
	}
	_, err = fmt.Fprint(a.Out, a.whyText(why))
	return err
}

// whyText prints the findings. It groups connections with the same limits and verdicts.
func (a *App) whyText(why *api.Why) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d (%s): %s\n", why.PID, printable(why.Name), a.summary(why))
	for _, group := range alike(why.Sockets) {
		b.WriteString("\n" + a.groupTitle(why, group))
		t := table{columns: []column{{}, {title: "LIMIT ON"}, {title: "RATE", right: true}, {}, {title: "SET BY"}, {title: "IN USE", right: true}, {}}}
		for _, l := range group[0].Limits {
			t.rows = append(t.rows, a.whyRow(l, group))
		}
		for line := range strings.Lines(t.render(0)) {
			b.WriteString("  " + line)
		}
		fmt.Fprintf(&b, "  %s\n", verdictText(group))
	}
	for _, note := range why.Notes {
		b.WriteString("\n" + printable(note) + "\n")
	}
	if why.Packet > 0 {
		fmt.Fprintf(&b, "\nWhat it sends by %s may leave past limits; netnice doctor says how to close that.\n", count(why.Packet, "packet socket"))
	}
	return b.String()
}

// summary returns the answer in one line.
func (a *App) summary(why *api.Why) string {
	free := ""
	if why.Free > 0 {
		free = fmt.Sprintf(", %s without a limit", count(why.Free, "socket"))
	}
	if why.HiddenProcesses > 0 {
		free += fmt.Sprintf("; %s of other users not looked at", count(why.HiddenProcesses, "descendant"))
	}
	others := len(why.Processes) - 1
	if len(why.Sockets) == 0 {
		text := "no limit holds for a connection of it"
		if others > 0 {
			text += " or of " + count(others, "descendant")
		}
		return text + free
	}
	bound := 0
	for _, s := range why.Sockets {
		if s.Up == api.BoundByLimit || s.Down == api.BoundByLimit {
			bound++
		}
	}
	of := ""
	if others > 0 {
		of = " of it and " + count(others, "descendant")
	}
	return fmt.Sprintf("%s%s under limits, %d of them bound by one%s", count(len(why.Sockets), "socket"), of, bound, free)
}

// alike groups sockets that have the same limits and verdicts.
func alike(sockets []api.WhySocket) (groups [][]api.WhySocket) {
	same := func(a, b api.WhySocket) bool {
		return a.Up == b.Up && a.Down == b.Down && a.Process == b.Process && a.PID == b.PID && a.Protocol == b.Protocol && a.Loopback == b.Loopback &&
			slices.EqualFunc(a.Limits, b.Limits, func(x, y api.WhyLimit) bool {
				return x.Node == y.Node && x.Direction == y.Direction && x.Owner == y.Owner && x.BytesPerSec == y.BytesPerSec &&
					x.Binds == y.Binds && x.Node != 0
			})
	}
	for _, s := range sockets {
		i := slices.IndexFunc(groups, func(g []api.WhySocket) bool { return same(g[0], s) })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], s)
	}
	return groups
}

// groupTitle names up to three sockets of a group, and describes the traffic of the group.
func (a *App) groupTitle(why *api.Why, group []api.WhySocket) string {
	const most = 3
	var b strings.Builder
	for i, s := range group {
		if i == most {
			fmt.Fprintf(&b, "... and %d more\n", len(group)-most)
			break
		}
		fmt.Fprintf(&b, "%s %s", s.Protocol, s.Local)
		if s.Remote != "" {
			fmt.Fprintf(&b, " > %s", s.Remote)
		}
		if len(s.FDs) == 0 {
			b.WriteString(", without a file: closed and draining, or not accepted yet")
		} else {
			fmt.Fprintf(&b, ", fd %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(s.FDs), " ", ", "), "[]"))
		}
		owner := cmp.Or(s.Process, why.PID)
		if owner != why.PID {
			fmt.Fprintf(&b, ", of process %d (%s)", owner, printable(programOf(why, owner)))
		}
		if s.PID != owner && s.PID != 0 {
			fmt.Fprintf(&b, ", charged to process %d, which used it last", s.PID)
		}
		b.WriteString("\n")
	}
	var sent, received, waiting uint64
	counted := false
	for _, s := range group {
		waiting += s.WaitingBytes
		if s.SentBytesPerSec != nil && s.ReceivedBytesPerSec != nil {
			counted = true
			sent, received = sent+*s.SentBytesPerSec, received+*s.ReceivedBytesPerSec
		}
	}
	if counted {
		fmt.Fprintf(&b, "  %s up, %s down, %s wait to be sent\n", units.FormatRate(sent, a.units),
			units.FormatRate(received, a.units), units.FormatBytes(waiting, a.units))
	}
	return b.String()
}

// programOf names one of the processes that were examined.
func programOf(why *api.Why, pid int) string {
	for _, p := range why.Processes {
		if p.PID == pid {
			return p.Name
		}
	}
	return "?"
}

func (a *App) whyRow(l api.WhyLimit, group []api.WhySocket) []string {
	mark, what := " ", ""
	switch {
	case l.Binds:
		mark, what = ">", a.paint(yellow, "binds")
	case !l.Enforced:
		what = "not in force yet"
	case !l.Holds && group[0].Loopback:
		what = "not for traffic of the machine to itself"
	case !l.Holds:
		what = "another is lower"
	}
	subject := printable(l.Subject.String())
	return []string{
		mark, subject, units.FormatRate(l.BytesPerSec, a.units), printable(string(l.Direction)) + a.leftText(l.Limit), setterText(l.Limit),
		fmt.Sprintf("%s, %.3f of it", units.FormatRate(l.UsedBytesPerSec, a.units), l.Used), what,
	}
}

// verdictText describes the reason that holds a group of sockets.
func verdictText(group []api.WhySocket) string {
	s := group[0]
	var parts []string
	switch s.Up {
	case api.BoundByLimit:
	case api.LimitedWhole:
		return "limited as a whole, as it has no room for state: which limit binds is not known"
	case api.NothingToSend:
		parts = append(parts, "nothing binds what it sends: it has no more to send")
	case api.BoundElsewhere:
		parts = append(parts, "no limit binds what it sends: it waits for the receiver, the network or a processor")
	default:
		parts = append(parts, "sending: "+printable(string(s.Up)))
	}
	limitsDown := slices.ContainsFunc(s.Limits, func(l api.WhyLimit) bool { return l.Direction == api.Down })
	if limitsDown && s.Down != api.BoundByLimit {
		parts = append(parts, "nothing binds what it receives: no more comes")
	}
	for _, l := range s.Limits {
		if l.Binds {
			parts = append(parts, fmt.Sprintf("%s %s binds, at %.0f%% of the looks", printable(l.Subject.String()), l.Direction, 100*l.Bound))
		}
	}
	return strings.Join(parts, "; ")
}
