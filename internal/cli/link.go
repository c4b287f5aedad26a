package cli

import (
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) link() *cobra.Command {
	var rates rateFlags
	both := optional[uint64]{parse: units.ParseRate, kind: "rate"}
	var asJSON, dryRun bool
	cmd := &cobra.Command{
		Use:   "link DEVICE [--rate RATE] [--up RATE] [--down RATE] [--total RATE]",
		Short: "Keep what leaves and comes by a network device to what the line carries",
		Long: `Limit what the programs of this machine send and receive by a network device, so
that what has to wait does so here, where each program has its part by weight and
guarantee, and not in the modem, where all wait behind whoever sends most. Give a
little less than the line carries. A device that goes and comes back is limited
again; netnice unset --link DEVICE lifts it.

What the machine forwards, and what the kernel sends itself, does not wait; what is
sent so is taken off what the programs may send.

` + rateHelp,
		Example: "  sudo netnice link eth0 --up 38mbit --down 190mbit\n  sudo netnice link wlan0 --rate 50mbit",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := rates.wish()
			if both.value != nil {
				w.UpBytesPerSec, w.DownBytesPerSec = both.value, both.value
			}
			s := linkHere(api.Subject{Kind: api.KindLink, ID: args[0]})
			if w == (api.Wish{}) {
				return fail("netnice link "+args[0]+" --rate 50mbit, or netnice show --link "+args[0], "no rate given")
			}
			return a.apply(cmd.Context(), api.SetRequest{Subject: s, Wish: w, DryRun: dryRun}, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.Var(&both, "rate", "limit each way to that")
	rates.add(cmd, "programs")
	cmd.MarkFlagsMutuallyExclusive("rate", "up")
	cmd.MarkFlagsMutuallyExclusive("rate", "down")
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}
