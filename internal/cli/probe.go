package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/probe"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

// probeFlags holds the flags of `netnice probe`.
type probeFlags struct {
	asJSON, reflect, v4, v6 bool
	svg, packets, listen    string
	port                    uint16
	share                   string
	duration                time.Duration
	most                    uint64
	size                    int
}

func (a *App) probe() *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe HOST [--packets KIND] [--share N%] [--for TIME] [--svg FILE] | --reflect [--listen ADDRESS:PORT]",
		Short: "Measure what the path to a host carries, and what others leave of it",
		Long: `Send the host small trains of packets, few and short at first, and find from when
the answers come what the path carries (its capacity, in IP bytes) and what the
traffic that is there leaves of it. What the measurement cost is printed with it.

Probe packets are, of what the host answers to, UDP to a netnice there that
reflects (netnice probe --reflect), ICMP Timestamp (IPv4), or ICMP echo. Answers
to echo are as large as the requests, so the narrower of both ways is measured;
with the others it is the way there. It needs CAP_NET_RAW (root), or for echo that
ping sockets are allowed (sysctl net.ipv4.ping_group_range), and no daemon.`,
		Example: "  netnice probe example.net\n  netnice probe 192.0.2.7 --json --share 20%\n  netnice probe --reflect --listen '[::]:7077'",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.reflect && len(args) > 0:
				return fail("netnice probe --reflect, and there netnice probe THIS-HOST", "--reflect answers others and takes no host")
			case f.reflect:
				return a.reflectProbes(cmd.Context(), f.listen)
			case len(args) == 0:
				return fail("netnice probe example.net", "no host given")
			case cmd.Flags().Changed("listen"):
				return fail("netnice probe --reflect --listen "+shell.Word(f.listen), "--listen goes with --reflect")
			}
			return a.measurePath(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	jsonFlag(cmd, &f.asJSON)
	flags.BoolVarP(&f.v4, "ipv4", "4", false, "use IPv4")
	flags.BoolVarP(&f.v6, "ipv6", "6", false, "use IPv6")
	flags.StringVar(&f.packets, "packets", "any", "what to send: any, icmp-timestamp, icmp-echo or udp, as `KIND`")
	flags.Uint16Var(&f.port, "port", probe.DefaultPort, "the reflector's `port`")
	flags.StringVar(&f.share, "share", "50%", "use this `part` of the path on average, 1% to 100%")
	flags.DurationVar(&f.duration, "for", probe.DefaultDuration, "begin no train after this `time`")
	flags.Uint64Var(&f.most, "most", probe.DefaultBytes, "send no more than so many `bytes`")
	flags.IntVar(&f.size, "size", 0, "IP `bytes` of a packet (default 1500, or what the device carries)")
	flags.StringVar(&f.svg, "svg", "", "draw the train into this `FILE`")
	flags.BoolVar(&f.reflect, "reflect", false, "answer others' probe packets with the time at which they came")
	flags.StringVar(&f.listen, "listen", fmt.Sprintf("[::]:%d", probe.DefaultPort), "where, as `ADDRESS:PORT` (UDP)")
	cmd.MarkFlagsMutuallyExclusive("ipv4", "ipv6")
	for _, name := range []string{"json", "svg", "packets", "share", "for", "most", "size"} {
		cmd.MarkFlagsMutuallyExclusive("reflect", name)
	}
	_ = cmd.RegisterFlagCompletionFunc("packets", cobra.FixedCompletions([]string{"any", string(probe.Timestamp), string(probe.Echo), string(probe.UDP)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *App) reflectProbes(ctx context.Context, listen string) error {
	at, err := netip.ParseAddrPort(listen)
	if err != nil {
		return fail(fmt.Sprintf("write --listen 192.0.2.7:%d or --listen '[::]:%[1]d'", probe.DefaultPort), "--listen %q is no address and port", listen)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := probe.Listen(at)
	if err != nil {
		return &failure{message: err.Error(), hint: "ss -ulnp shows who listens; --listen takes another address or port", cause: err}
	}
	fmt.Fprintf(a.Err, "answering probes at %s, UDP; Ctrl-C ends it\n", r.Addr())
	return errors.Join(r.Serve(ctx), r.Close())
}

// kinds returns the kinds of packets to try. The kinds that tell most come first.
func (f probeFlags) kinds(to netip.Addr) ([]probe.Kind, error) {
	switch kind := probe.Kind(f.packets); kind {
	case "any":
		if to.Is6() {
			return []probe.Kind{probe.UDP, probe.Echo}, nil
		}
		return []probe.Kind{probe.UDP, probe.Timestamp, probe.Echo}, nil
	case probe.Timestamp:
		if to.Is6() {
			return nil, fail("--packets icmp-echo, or -4", "IPv6 has no ICMP Timestamp")
		}
		return []probe.Kind{kind}, nil
	case probe.Echo, probe.UDP:
		return []probe.Kind{kind}, nil
	default:
		return nil, fail("write any, icmp-timestamp, icmp-echo or udp", "--packets %q is not known", f.packets)
	}
}

func (f probeFlags) options() (probe.Options, error) {
	share, err := strconv.ParseFloat(strings.TrimSuffix(f.share, "%"), 64)
	if err != nil || !strings.HasSuffix(f.share, "%") || !(share >= 1 && share <= 100) {
		return probe.Options{}, fail("write 1% to 100%", "--share %q is no part of the path", f.share)
	}
	if f.duration < time.Second || f.duration > 10*time.Minute {
		return probe.Options{}, fail("write 1s to 10m", "--for %v is out of range", f.duration)
	}
	if f.most < 1<<16 || f.most > 1<<34 {
		return probe.Options{}, fail("write 65536 to 17179869184 bytes", "--most %d is out of range", f.most)
	}
	if f.size != 0 && (f.size < 100 || f.size > probe.MaxSize) {
		return probe.Options{}, fail(fmt.Sprintf("write 100 to %d bytes", probe.MaxSize), "--size %d is out of range", f.size)
	}
	return probe.Options{Share: share / 100, Duration: f.duration, Bytes: f.most, Size: f.size}, nil
}

func (a *App) measurePath(ctx context.Context, host string, f probeFlags) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	options, err := f.options()
	if err != nil {
		return err
	}
	to, err := lookUp(ctx, host, f)
	if err != nil {
		return err
	}
	tcp, _ := probe.Connections(ctx, "", to) // an additional figure; the others are good without it
	result, err := a.probePath(ctx, host, to, f, options)
	if err != nil {
		return err
	}
	if f.svg != "" {
		if err := writeTrain(f.svg, result.Train, fmt.Sprintf("a train to %s", host)); err != nil {
			return err
		}
	}
	answer := probeAnswer(host, to, result, tcp)
	if f.asJSON {
		return writeJSON(a.Out, answer)
	}
	return a.printProbe(answer, result)
}

// probePath measures the path to an address of a host, by packets to which it answers.
func (a *App) probePath(ctx context.Context, host string, to netip.Addr, f probeFlags, options probe.Options) (probe.Result, error) {
	kinds, err := f.kinds(to)
	if err != nil {
		return probe.Result{}, err
	}
	finish := func() {}
	if width, _ := a.System.Terminal(a.Err); width > 0 {
		options.Progress = func(p probe.Progress) { a.showProgress(host, p) }
		finish = func() { fmt.Fprint(a.Err, "\r\x1b[K") }
	}
	p, err := probe.Reach(ctx, probe.Config{To: to, Port: f.port, Timeout: 20 * time.Second}, kinds)
	if err != nil {
		return probe.Result{}, unreachableHost(interrupted(ctx, err))
	}
	defer p.Close()
	result, err := probe.Measure(ctx, p, options)
	finish()
	if errors.Is(err, probe.ErrDropped) {
		return result, &failure{
			message: fmt.Sprintf("%s: %v (%d packets lost)", printable(host), err, result.Lost),
			hint:    "--size 300: a short queue has room for more of them", cause: err,
		}
	}
	return result, interrupted(ctx, err)
}

// unreachableHost returns the error for a host that was not reached. Its exit code is that of a denial if a denial is
// the reason.
func unreachableHost(err error) error {
	if !errors.Is(err, probe.ErrDenied) {
		return err
	}
	message, hint, _ := explain(err)
	return &failure{message: message, hint: hint, code: exitDenied, cause: err}
}

func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return failWith(exitFailed, "nothing is left behind; run it again", "interrupted")
	}
	return err
}

// lookUp returns the address of a host, of the address family that the flags ask for.
func lookUp(ctx context.Context, host string, f probeFlags) (netip.Addr, error) {
	network, family := "ip", "address"
	switch {
	case f.v4:
		network, family = "ip4", "IPv4 address"
	case f.v6:
		network, family = "ip6", "IPv6 address"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil || len(found) == 0 {
		return netip.Addr{}, &failure{message: fmt.Sprintf("%q has no %s that can be found", host, family), hint: "write a host's name or address; getent ahosts " + host + " looks it up", code: exitNoSubject, cause: err}
	}
	return found[0].Unmap(), nil
}

func writeTrain(path string, t probe.Train, title string) error {
	out, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o644))
	if err != nil {
		return &failure{message: fmt.Sprintf("draw into %s: %v", path, err), hint: "--svg takes a file in a folder that may be written to", cause: err}
	}
	defer func() { _ = out.Cleanup() }()
	if err := t.SVG(out, title); err != nil {
		return err
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("draw into %s: %w", path, err)
	}
	return nil
}

func (a *App) showProgress(host string, p probe.Progress) {
	what := map[string]string{"reaching": "reaching", "capacity": "capacity of the path to", "available": "what is left of the path to"}[p.Step]
	rate := ""
	if p.BytesPerSec > 0 {
		rate = ": " + units.FormatRate(uint64(p.BytesPerSec), a.units)
	}
	fmt.Fprintf(a.Err, "\r\x1b[K%s %s%s (%s in %s)", what, printable(host), rate, units.FormatBytes(p.SentBytes, a.units), count(p.Trains, "train"))
}

func probeAnswer(host string, to netip.Addr, r probe.Result, tcp probe.Passive) *api.Probe {
	figure := func(f probe.Figure) api.ProbeFigure {
		return api.ProbeFigure{BytesPerSec: uint64(f.BytesPerSec), PlusMinusBytesPerSec: uint64(f.PlusMinus), AtLeast: f.AtLeast}
	}
	answer := &api.Probe{
		Version: api.Version, Host: host, Address: to.String(), Packets: string(r.Kind), OneWay: r.Kind != probe.Echo,
		Capacity: figure(r.Capacity), BurstBytes: uint64(r.BurstBytes), RoundTripNS: uint64(r.RoundTrip),
		Trains: r.Trains, SentBytes: r.SentBytes, LostPackets: r.Lost, TookNS: uint64(r.Took), PacketBytes: r.Size, Fragments: r.Fragments,
	}
	if !r.Available.AtLeast {
		left := figure(r.Available)
		answer.Available = &left
	}
	if tcp.Connections > 0 {
		answer.TCP = &api.ProbeTCP{
			Connections: tcp.Connections, AppLimited: tcp.AppLimited,
			DeliveryBytesPerSec: uint64(tcp.DeliveryBytesPerSec), RoundTripNS: uint64(tcp.LeastRTT),
		}
	}
	return answer
}

func (a *App) printProbe(p *api.Probe, r probe.Result) error {
	width, _ := a.System.Terminal(a.Out)
	if width > 0 {
		if err := r.Train.Draw(a.Out, width); err != nil {
			return err
		}
	}
	way := "the way there"
	if !p.OneWay {
		way = "the narrower of both ways"
	}
	var b strings.Builder
	together := ""
	if p.Fragments > 0 {
		together = fmt.Sprintf(", %d at a time as fragments", p.Fragments)
	}
	fmt.Fprintf(&b, "%s (%s), by %s packets of %d bytes%s: %s\n", printable(p.Host), p.Address, p.Packets, p.PacketBytes, together, way)
	fmt.Fprintf(&b, "  capacity    %s\n", a.figureText(p.Capacity))
	switch {
	case p.Available != nil:
		fmt.Fprintf(&b, "  available   %s\n", a.figureText(*p.Available))
	case p.Capacity.AtLeast:
		b.WriteString("  available   not known: no train filled a queue, the path is faster than this machine sends\n")
	default:
		b.WriteString("  available   not known: the measurement's bounds were reached (--for, --most)\n")
	}
	if p.BurstBytes > 2*uint64(p.PacketBytes) {
		fmt.Fprintf(&b, "  burst       %s came at once (a token bucket)\n", units.FormatBytes(p.BurstBytes, a.units))
	}
	fmt.Fprintf(&b, "  round trip  %s at least\n", units.FormatDuration(p.RoundTripNS))
	if t := p.TCP; t != nil {
		fmt.Fprintf(&b, "  TCP         %s to it, %d of them with no more to send; the others get %s of payload, round trip %s at least\n",
			count(t.Connections, "connection"), t.AppLimited, units.FormatRate(t.DeliveryBytesPerSec, a.units), units.FormatDuration(t.RoundTripNS))
	}
	fmt.Fprintf(&b, "  cost        %s in %s, %s, %d packets lost\n", units.FormatBytes(p.SentBytes, a.units), count(p.Trains, "train"),
		units.FormatDuration(p.TookNS), p.LostPackets)
	_, err := a.Out.Write([]byte(b.String()))
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (a *App) figureText(f api.ProbeFigure) string {
	rate := units.FormatRate(f.BytesPerSec, a.units)
	if f.AtLeast {
		return "at least " + rate
	}
	return fmt.Sprintf("%s ± %s", rate, units.FormatRate(f.PlusMinusBytesPerSec, a.units))
}
