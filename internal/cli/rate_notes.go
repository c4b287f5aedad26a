package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netnice/netnice/internal/units"
)

// noteFlagRates says, before a command does anything, how the rates among its flags
// were read where people may read them otherwise.
func (a *App) noteFlagRates(cmd *cobra.Command) {
	var notes []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind == kindRate || kind == kindBareRate {
			notes = append(notes, rateNotes(f.Value.String(), isLimitFlag(f.Name))...)
		}
	})
	slices.Sort(notes) // the same one once
	a.warn(notes)
}

// isLimitFlag reports whether a flag's rate is a limit, which a slip makes too low. A
// guarantee, and the bounds of a rate that follows a path, may be as low as they like.
func isLimitFlag(flag string) bool {
	return !strings.HasPrefix(flag, "min") && flag != "start" && flag != "least" && flag != "most"
}

// rateNotes are what its author may not expect of a rate.
func rateNotes(text string, isLimit bool) (notes []string) {
	if note := units.AmbiguityNote(text); note != "" {
		notes = append(notes, note)
	}
	if note := units.LowRateNote(text); note != "" && isLimit {
		notes = append(notes, note)
	}
	return notes
}
