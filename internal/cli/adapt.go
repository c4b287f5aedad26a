package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) adapt() *cobra.Command {
	var f adaptFlags
	cmd := &cobra.Command{
		Use:   "adapt [HOST|PREFIX[,!PREFIX]|--to-all [off]]",
		Short: "Have what is sent to a host, or to many, follow what the path carries",
		Long: `Traffic without a congestion control of its own, UDP, is sent to a host as fast as the path there
carries it: the rest waits here, and what would wait for longer than --backlog is dropped here, not in the network. It is found out by small probes
(ICMP Timestamp, else echo; 2% of the rate, up to 5% below 100 kbit/s), by their delay in the queue of
the bottleneck, which is kept short. Beside traffic that fills that queue whatever is sent here, such as TCP,
a share of the path's capacity is kept. Each address has its own rate; all else is untouched.

Of a prefix, or with --to-all (or 'any,!10.0.0.0/8': all but these), each host to which something is sent is
found within a second or two, and has a rate of its own until a minute after the last packet. Hosts that answer
no probe are not limited. 64 hosts may be followed at a time.

The rate is that of a limit like others, on the destination: netnice ls shows it, and it stays as it is
while no daemon runs. With HOST off that ends; without HOST, all are listed: hosts that were found
by prefixes, for administrators. A host is that of the caller's network namespace; HOST@NUMBER is that of
another, as the list has it.`,
		Example: "  netnice adapt 192.0.2.7\n  netnice adapt video.example.com --share 30% --most 20mbit\n  netnice adapt voice.example.com --backlog 200ms\n  netnice adapt 'any,!192.168.0.0/16'\n  netnice adapt 192.0.2.7 off\n  netnice adapt",
		Args:    between(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.all {
				args = append([]string{"any"}, args...)
			}
			if len(args) > 2 {
				return fail("netnice adapt --to-all, or netnice adapt "+shell.Word(args[1]), "--to-all takes no host")
			}
			if len(args) == 0 {
				if f.said() {
					return fail("netnice adapt 192.0.2.7 --share 30%", "no host is named")
				}
				return a.listAdapted(cmd.Context(), f.asJSON)
			}
			request, err := f.request(args)
			if err != nil {
				return err
			}
			return a.setAdapt(cmd.Context(), request, f.asJSON)
		},
	}
	f.add(cmd)
	return cmd
}

// adaptFlags are the flags of adapt.
type adaptFlags struct {
	cmd                         *cobra.Command
	asJSON, dryRun, tcp, all    bool
	share                       string
	port                        uint16
	start, least, most, backlog optional[uint64]
}

func (f *adaptFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	f.start = optional[uint64]{parse: units.ParseRate, kind: kindRate}
	f.least, f.most = f.start, f.start
	f.backlog = optional[uint64]{parse: parseBacklog, kind: "time"}
	flags := cmd.Flags()
	flags.StringVar(&f.share, "share", "50%", "the `percent` of the path's capacity, 10% to 100%, kept beside traffic that fills the path")
	flags.BoolVar(&f.tcp, "tcp", false, "pace what TCP sends there, too")
	flags.Var(&f.start, "start", "begin with this, instead of measuring")
	flags.Var(&f.least, "least", "never less (8 kbit/s)")
	flags.Var(&f.most, "most", "never more")
	completeRates(cmd, "start", "least", "most")
	flags.Var(&f.backlog, "backlog", "datagrams wait here for so long at most, more are dropped: 10ms to 1m (1s)")
	flags.Uint16Var(&f.port, "reflector", 0, "UDP `port` of a netnice probe --reflect there, instead of ICMP")
	flags.BoolVar(&f.all, "to-all", false, "every host to which something is sent")
	jsonFlag(cmd, &f.asJSON)
	dryRunFlag(cmd, &f.dryRun)
}

// said reports whether a flag says how to adapt.
func (f *adaptFlags) said() bool {
	return f.cmd.Flags().Changed("share") || f.tcp || f.start.value != nil || f.least.value != nil || f.most.value != nil || f.backlog.value != nil || f.port != 0
}

// request returns the request for a host, and for "off" if that is the second word.
func (f *adaptFlags) request(args []string) (request api.AdaptRequest, err error) {
	host, netns, err := splitNamespace(args[0])
	if err != nil {
		return request, err
	}
	request = api.AdaptRequest{Host: host, TCP: f.tcp, ReflectorPort: f.port, DryRun: f.dryRun}
	for _, r := range []struct {
		from optional[uint64]
		to   *uint64
	}{{f.start, &request.StartBytesPerSec}, {f.least, &request.LeastBytesPerSec}, {f.most, &request.MostBytesPerSec}, {f.backlog, &request.BacklogNS}} {
		if r.from.value != nil {
			*r.to = *r.from.value
		}
	}
	if f.cmd.Flags().Changed("share") {
		if request.SharePPM, err = parseShare(f.share); err != nil {
			return request, err
		}
	}
	if len(args) == 2 {
		if args[1] != "off" {
			return request, fail("netnice adapt "+shell.Word(args[0])+" off", "%q is not off", args[1])
		}
		request = api.AdaptRequest{Host: host, Off: true, DryRun: f.dryRun}
	}
	if request.Netns, request.NetnsNamed = netns, netns != 0; !request.NetnsNamed {
		if request.Netns, err = netnamespace.Of("self"); err != nil {
			return request, err
		}
	}
	return request, nil
}

// splitNamespace splits HOST@NUMBER. The number is that of a network namespace; 0 = the word has none.
func splitNamespace(text string) (host string, netns uint32, err error) {
	host, number, named := strings.Cut(text, "@")
	if !named {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || n == 0 || host == "" {
		return "", 0, fail("netnice adapt lists them; stat -L -c %i /proc/PID/ns/net", "%q: behind the @ stands the inode number of a network namespace", text)
	}
	return host, uint32(n), nil
}

// hostFrom returns a host as the list has it, with the network namespace from which it is reached if that is not the
// daemon's.
func hostFrom(host string, netns uint32) string {
	if netns == 0 {
		return printable(host)
	}
	return printable(host) + "@" + strconv.FormatUint(uint64(netns), 10)
}

// parseShare reads per cent, as parts of a million.
func parseShare(text string) (uint32, error) {
	ppm, ok := units.ParseShare(text)
	if !ok {
		return 0, fail("--share 50%", "%q is no share: write 10%% to 100%%", text)
	}
	return ppm, nil
}

// parseBacklog reads how long datagrams may wait.
func parseBacklog(text string) (uint64, error) {
	ns, err := units.ParseDuration(text)
	if err == nil && ns == 0 { // the daemon takes 0 for the usual backlog
		err = fail("--backlog 1s", "a backlog of 0 cannot be kept: write 10ms to 1m")
	}
	return ns, err
}

func (a *App) setAdapt(ctx context.Context, request api.AdaptRequest, asJSON bool) error {
	var list *api.AdaptList
	call := func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.SetAdapt(ctx, request)
		return err
	}
	var err error
	if request.DryRun {
		err = a.rehearse(ctx, call, api.Subject{Kind: api.KindTo, ID: request.Host})
	} else {
		err = a.write(ctx, call)
	}
	switch {
	case err != nil:
		return err
	case list == nil:
		return nil // a dry run without a daemon
	case asJSON:
		return writeJSON(a.Out, list)
	}
	a.warn(list.Warnings)
	would := ""
	if request.DryRun {
		would = "would be: "
	}
	if request.Off {
		ended := printable(request.Host)
		for _, t := range list.Adapted { // all of them are reached from the same namespace
			ended = hostFrom(request.Host, t.Netns)
		}
		for _, area := range list.Areas {
			ended = hostFrom(request.Host, area.Netns)
		}
		fmt.Fprintf(a.Out, "%swhat is sent to %s follows the path no more\n", would, ended)
		return nil
	}
	for _, area := range list.Areas {
		fmt.Fprintf(a.Out, "%swhat is sent to each host of %s follows the path there\n", would, hostFrom(area.Host, area.Netns))
	}
	for i := range list.Adapted {
		t := &list.Adapted[i]
		if request.DryRun {
			fmt.Fprintf(a.Out, "%swhat is sent to %s follows the path\n", would, hostFrom(t.Address, t.Netns))
			continue
		}
		fmt.Fprintf(a.Out, "what is sent to %s follows the path: %s to begin with, probed by %s\n", hostFrom(t.Address, t.Netns), units.FormatRate(t.RateBytesPerSec, a.units), t.By)
	}
	return nil
}

// listAdapted prints all hosts and areas that are adapted to.
func (a *App) listAdapted(ctx context.Context, asJSON bool) error {
	var list *api.AdaptList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.Adapted(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.Out, list)
	}
	t := table{columns: []column{
		{title: "HOST", elastic: true},
		{title: "ADDRESS"},
		{title: "MODE"},
		{title: "RATE", right: true},
		{title: "SENT", right: true},
		{title: "PATH", right: true},
		{title: "QUEUE", right: true, drop: 1},
		{title: "RTT", right: true, drop: 2},
		{title: "LOST", right: true, drop: 3},
		{title: "BY", drop: 4},
	}}
	for _, x := range list.Areas {
		mode := "its hosts"
		if x.SilentHosts > 0 {
			mode += ", " + strconv.Itoa(x.SilentHosts) + " silent"
		}
		if x.Rule != nil {
			mode += ", rule " + printable(x.Rule.Name)
		}
		t.rows = append(t.rows, []string{hostFrom(x.Host, x.Netns), "-", mode, "-", "-", "-", "-", "-", "-", "-"})
	}
	for i := range list.Adapted {
		x := &list.Adapted[i]
		path, mode := "-", x.Mode
		if x.WindowPackets != 0 {
			mode += ", window " + strconv.Itoa(x.WindowPackets)
		}
		if x.CapacityBytesPerSec != 0 {
			path = units.FormatRate(x.CapacityBytesPerSec, a.units)
		}
		t.rows = append(t.rows, []string{
			hostFrom(x.Host, x.Netns), x.Address, mode, units.FormatRate(x.RateBytesPerSec, a.units), units.FormatRate(x.SentBytesPerSec, a.units),
			path, units.FormatDuration(x.QueueNS), units.FormatDuration(x.BaseNS), strconv.FormatFloat(float64(x.ProbesLostPPM)/1e4, 'f', 0, 64) + "%", x.By,
		})
	}
	width, _ := a.System.Terminal(a.Out)
	fmt.Fprint(a.Out, t.render(width))
	return nil
}
