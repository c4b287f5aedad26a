package cli

import (
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

// unknownText prints the amount of traffic for which no process is known, and the reasons.
func (a *App) unknownText(u api.Unknown) string {
	var parts []string
	for _, of := range []struct {
		way   string
		usage api.UnknownUsage
	}{{"sent", u.Up}, {"received", u.Down}} {
		if of.usage.Bytes == 0 {
			continue
		}
		var why []string
		for _, b := range []struct {
			bytes uint64
			what  string
		}{
			{of.usage.BytesOf.Socket, "by sockets of no process"},
			{of.usage.BytesOf.Kernel, "by the kernel itself"},
			{of.usage.BytesOf.NoSocket, "for no socket here"},
		} {
			if b.bytes > 0 {
				why = append(why, units.FormatBytes(b.bytes, a.units)+" "+b.what)
			}
		}
		parts = append(parts, units.FormatBytes(of.usage.Bytes, a.units)+" "+of.way+" ("+strings.Join(why, ", ")+")")
	}
	if len(parts) == 0 {
		return "nothing sent or received of which no process is known"
	}
	return strings.Join(parts, ", ")
}
