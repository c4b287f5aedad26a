package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netnice/netnice/internal/units"
)

// noteFlagRates notes how netnice has read the rates among a command's flags, where people may read them otherwise. It
// runs before the command does anything.
func (a *App) noteFlagRates(cmd *cobra.Command) {
	var notes []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind == kindRate || kind == kindBareRate {
			notes = append(notes, rateNotes(f.Value.String(), isLimitFlag(f.Name))...)
		}
	})
	slices.Sort(notes) // so that warn prints equal notes once
	a.warn(notes)
}

// isLimitFlag reports whether a flag's rate is a limit, which may be too low by a slip of the user. A guarantee, and
// the bounds of a rate that follows a path, may have any value.
func isLimitFlag(flag string) bool {
	return !strings.HasPrefix(flag, "min") && flag != "start" && flag != "least" && flag != "most"
}

// rateNotes returns notes on the meaning of a rate that its author may not expect.
func rateNotes(text string, isLimit bool) (notes []string) {
	if note := units.AmbiguityNote(text); note != "" {
		notes = append(notes, note)
	}
	if note := units.LowRateNote(text); note != "" && isLimit {
		notes = append(notes, note)
	}
	return notes
}
