package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

// wishFlags are the flags that state the requested limits of a subject.
type wishFlags struct {
	up, down, total, burst, min, minDown optional[uint64]
	weight                               optional[uint32]
	dscp                                 optional[int]
	background, interactive              bool
	loopback, meter                      bool
	persist                              *bool
	cmd                                  *cobra.Command
}

const rateHelp = `A RATE needs a unit: 10MB/s (bytes), 10mbit (bits), 512K (1024 bytes); 0, none
or unlimited lift. It counts bytes of IP packets, headers included.`

func (f *wishFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	f.up = optional[uint64]{parse: units.ParseRate, kind: kindRate}
	f.down, f.total, f.min, f.minDown = f.up, f.up, f.up, f.up
	f.burst = optional[uint64]{parse: units.ParseDuration, kind: "time"}
	f.weight = optional[uint32]{parse: parseWeight, kind: "n"}
	f.dscp = optional[int]{parse: parseDSCP, kind: "mark"}
	flags := cmd.Flags()
	flags.Var(&f.up, "up", "limit what is sent")
	flags.Var(&f.down, "down", "limit what is received")
	flags.Var(&f.total, "total", "limit both together")
	flags.Var(&f.burst, "burst", "unused time that may be made up for; 0 = the default, 10ms")
	flags.Var(&f.weight, "weight", "share beside its siblings inside a limit or a link's rate, 1..10000; 0 = the default, 100")
	flags.BoolVar(&f.loopback, "loopback", false, "limit traffic of the machine to itself too, such as that of a rootless container's published ports")
	flags.BoolVar(&f.meter, "input-meter", true, "count what is received in the total; =false: only what is sent")
	flags.Var(&f.min, "min", "send so much at least, of every limit around it, whatever others send; 0 lifts")
	flags.Var(&f.minDown, "min-down", "receive so much at least by TCP, of every limit around it; 0 lifts")
	flags.BoolVar(&f.background, "background", false, fmt.Sprintf("inside a limit or a link's rate only what others leave: --weight %d", backgroundWeight))
	flags.Var(&f.dscp, "dscp", "mark packets for the network beyond: 0..63, cs1, af41, ef, ...; none lifts")
	flags.BoolVar(&f.interactive, "interactive", false, fmt.Sprintf("inside a limit or a link's rate before others: --weight %d", interactiveWeight))
	cmd.MarkFlagsMutuallyExclusive("weight", "background", "interactive")
	completeRates(cmd, "up", "down", "total", "min", "min-down")
}

// wish returns the requested limits by the flags. The example is the remedy if no flag is given.
func (f *wishFlags) wish(example string) (api.Wish, error) {
	w := api.Wish{
		UpBytesPerSec: f.up.value, DownBytesPerSec: f.down.value, TotalBytesPerSec: f.total.value,
		BurstNS: f.burst.value, Weight: f.weight.value, MinBytesPerSec: f.min.value, MinDownBytesPerSec: f.minDown.value, DSCP: f.dscp.value, Persist: f.persist,
	}
	for asked, weight := range map[*bool]uint32{&f.background: backgroundWeight, &f.interactive: interactiveWeight} {
		if *asked {
			w.Weight = &weight
		}
	}
	if f.cmd.Flags().Changed("loopback") {
		w.Loopback = &f.loopback
	}
	if f.cmd.Flags().Changed("input-meter") {
		w.InputMeter = &f.meter
	}
	if w == (api.Wish{}) {
		return w, fail(example, "no limit given")
	}
	return w, nil
}

// forFlag is how long a limit holds.
type forFlag struct{ optional[uint64] }

func (f *forFlag) add(cmd *cobra.Command) {
	f.optional = optional[uint64]{parse: units.ParseDuration, kind: "time"}
	cmd.Flags().Var(&f.optional, "for", "hold so long, such as 10m; then what was set before holds again")
}

// ns returns the time in ns, 0 if none was given.
func (f *forFlag) ns() uint64 {
	if f.value == nil {
		return 0
	}
	return *f.value
}

// rateFlags are the limits of several processes together.
type rateFlags struct{ up, down, total optional[uint64] }

// add adds the flags. The argument whose is the subject of their help texts, such as "they".
func (f *rateFlags) add(cmd *cobra.Command, whose string) {
	rate := optional[uint64]{parse: units.ParseRate, kind: kindRate}
	f.up, f.down, f.total = rate, rate, rate
	flags := cmd.Flags()
	flags.Var(&f.up, "up", "limit what "+whose+" send together")
	flags.Var(&f.down, "down", "limit what "+whose+" receive together")
	flags.Var(&f.total, "total", "limit both together")
	completeRates(cmd, "up", "down", "total")
}

func (f *rateFlags) wish() api.Wish {
	return api.Wish{UpBytesPerSec: f.up.value, DownBytesPerSec: f.down.value, TotalBytesPerSec: f.total.value}
}

// takeTotal reads @RATE, which means the same as --total.
func (f *rateFlags) takeTotal(word string) error {
	text, at := strings.CutPrefix(word, "@")
	if !at {
		return fail("one file is served; a rate is such as @512Kbyte/sec", "%q is no rate", word)
	}
	if f.total.value != nil {
		return fail("write one of both", "the rate is given twice: --total %s and %s", f.total.text, word)
	}
	if err := f.total.Set(text); err != nil {
		var parse *units.ParseError
		if errors.As(err, &parse) {
			return fail("such as @512Kbyte/sec: "+parse.Remedy, "%s: %v", word, err)
		}
		return err
	}
	return nil
}

// These are kinds of flag values, as the help shows them: rates with a unit, and rates for which a bare number means
// bytes per second.
const (
	kindRate     = "rate"
	kindBareRate = "limit"
)

// optional is a flag value that knows whether it was given.
type optional[T uint32 | uint64 | int] struct {
	value *T
	text  string
	kind  string
	parse func(string) (T, error)
}

func (o *optional[T]) String() string { return o.text }
func (o *optional[T]) Type() string   { return o.kind }

func (o *optional[T]) Set(text string) error {
	v, err := o.parse(text)
	if err != nil {
		return err
	}
	o.value, o.text = &v, text
	return nil
}

// parseWeight reads 0..10000; 0 is the default.
func parseWeight(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > interactiveWeight {
		return 0, fail("write 1..10000; 100 is the default", "weight %q is out of range", text)
	}
	return uint32(n), nil
}
