package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) link() *cobra.Command {
	var rates rateFlags
	both := optional[uint64]{parse: units.ParseRate, kind: kindRate}
	var line lineFlags
	var asJSON, dryRun bool
	var host string
	cmd := &cobra.Command{
		Use:   "link DEVICE [--rate RATE | --measure HOST] [--up RATE] [--down RATE] [--total RATE] [--overhead BYTES [--mpu BYTES] [--atm]]",
		Short: "Keep what leaves and comes by a network device to what the line carries",
		Long: `Limit what the programs of this machine send and receive by a network device, so
that what has to wait does so here, where each program has its part by weight and
guarantee, and not in the modem, where all wait behind whoever sends most. Give a
little less than the line carries. A device that goes and comes back is limited
again; netnice unset --link DEVICE lifts it.

What the machine forwards, and what the kernel sends itself, does not wait; what is
sent so is taken off what the programs may send.

With --measure what the line carries towards a host is found by a measurement (netnice
probe), and what leaves gets 98% of it: name a host near to it, such as the provider's
gateway, and do it while nobody else uses the line. A limit that stands on what leaves is
off for these seconds, and back if the measurement fails.

With --overhead the limits of the link count what the line carries: that many bytes
more for each packet, at least --mpu, and with --atm in cells. Give the line's own rate
then, and it is kept with small packets too. Beside the IP packet a line carries for
instance 18 bytes (cable, --mpu 64), 38 (Ethernet, --mpu 84), 22 (VDSL) or 30 (VDSL
with PPPoE), 10 (ADSL, PPPoA VC-MUX, --atm), 40 (ADSL, PPPoE LLC, --atm). What is not
given of the three is none; --overhead 0 counts IP packets alone again. What comes in is
counted so by the mean size of its packets.

` + rateHelp,
		Example: "  sudo netnice link eth0 --up 38mbit --down 190mbit\n  sudo netnice link wlan0 --rate 50mbit\n  sudo netnice link ppp0 --up 10mbit --overhead 30\n  sudo netnice link eth0 --measure gateway.example.net --down 190mbit",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := rates.wish()
			var err error
			if w.Line, err = line.line(args[0]); err != nil {
				return err
			}
			if both.value != nil {
				w.UpBytesPerSec, w.DownBytesPerSec = both.value, both.value
			}
			s := linkHere(api.Subject{Kind: api.KindLink, ID: args[0]})
			if host != "" {
				return a.measureLink(cmd.Context(), args[0], host, api.SetRequest{Subject: s, Wish: w}, asJSON)
			}
			if w == (api.Wish{}) {
				return fail("netnice link "+args[0]+" --rate 50mbit, or netnice show --link "+args[0], "no rate given")
			}
			return a.apply(cmd.Context(), api.SetRequest{Subject: s, Wish: w, DryRun: dryRun}, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.Var(&both, "rate", "limit each way to that")
	flags.StringVar(&host, "measure", "", "limit what leaves to what the path to this `HOST` is measured to carry")
	rates.add(cmd, "programs")
	completeRates(cmd, "rate")
	cmd.ValidArgsFunction = a.completeFirst(api.KindLink)
	line.add(cmd)
	for _, name := range []string{"rate", "up", "dry-run"} {
		defer cmd.MarkFlagsMutuallyExclusive("measure", name)
	}
	cmd.MarkFlagsMutuallyExclusive("rate", "up")
	cmd.MarkFlagsMutuallyExclusive("rate", "down")
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// lineFlags are the flags for the link-layer overhead of a line.
type lineFlags struct {
	overhead, least optional[uint32]
	atm             bool
	cmd             *cobra.Command
}

func (f *lineFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	f.overhead = optional[uint32]{kind: "bytes", parse: func(text string) (uint32, error) { return parseBytes(text, "overhead", 255) }}
	f.least = optional[uint32]{kind: "bytes", parse: func(text string) (uint32, error) { return parseBytes(text, "least size", 1500) }}
	cmd.Flags().Var(&f.overhead, "overhead", "bytes that the line carries for a packet beside its IP bytes, 0..255")
	cmd.Flags().Var(&f.least, "mpu", "bytes that it carries for a packet at least, 0..1500")
	cmd.Flags().BoolVar(&f.atm, "atm", false, "it carries them in ATM's cells")
}

// line returns the overhead by the flags, nil if none is given.
func (f *lineFlags) line(device string) (*api.Line, error) {
	if f.overhead.value == nil {
		if f.least.value != nil || f.cmd.Flags().Changed("atm") {
			return nil, fail("netnice link "+device+" --overhead 10 --atm", "--mpu and --atm go with --overhead")
		}
		return nil, nil
	}
	l := &api.Line{OverheadBytes: *f.overhead.value, ATM: f.atm}
	if f.least.value != nil {
		l.LeastBytes = *f.least.value
	}
	return l, nil
}

// parseBytes reads 0..most. No line carries a negative number of bytes.
func parseBytes(text, what string, most uint64) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > most {
		return 0, fail(fmt.Sprintf("write 0..%d", most), "%s %q is out of range", what, text)
	}
	return uint32(n), nil
}
