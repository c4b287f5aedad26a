package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/statefile"
)

// A damaged file of the state is kept under another name, and netnice status reports it until somebody has examined and
// removed it. Its undamaged part may be older than the last request. In the boot in which the file was written, the
// limits in force therefore count, and no other limit comes back. A limit on a destination ends if its record
// is lost: the kernel side does not say which part it is for. After another boot no limit is in force, and the daemon
// sets the undamaged part. A superfluous limit can be seen and lifted; a missing one would go unnoticed.

// tallies reports whether a record agrees with the limit in force, and so is not older. The caller holds d.mu, or is
// the only one that knows the daemon yet.
func (d *Daemon) tallies(have enforce.NodeSpec, n *node) bool {
	want := d.specOf(n)
	// The value of a reservation in bytes/s is not known yet.
	if s := n.Holding().Reservation(); s != (limit.Slice{}) && have.PeriodNS == s.PeriodNS {
		want.PeriodNS, want.Link, want.SliceOnly, want.Guarantee = have.PeriodNS, have.Link, have.SliceOnly, have.Guarantee
	}
	return plan.Same(have, want)
}

// Damaged lists the damaged files of the state that are kept.
func Damaged(dir string) []string { return statefile.Damaged(dir, stateFiles) }

// toldCause returns the cause of a damage in a form that everybody may see. It leaves out quotations from the file,
// which may name a destination.
func toldCause(f statefile.Damage) string {
	if text := f.Cause.Error(); !strings.Contains(text, `"`) {
		return text
	}
	return "the daemon's log says what is wrong"
}

// whatWasIn returns what may be missing after a file of the state was damaged, and the command that shows the present
// state.
func whatWasIn(path string) (missing, shown string) {
	for _, f := range []struct{ name, missing, shown string }{
		{systemName, "what was set for the whole machine may be missing", "netnice system"},
		{cpushare.FileName, "shares of the processors may be missing", "netnice power"},
		{adaptation.FileName, "hosts to which what is sent followed the path may be missing", "netnice adapt"},
	} {
		if strings.HasPrefix(filepath.Base(path), f.name) {
			return f.missing, f.shown
		}
	}
	return "limits that were wanted may be missing, or older than what was wanted last", "netnice ls"
}

// damagedProblems returns the damaged files, for netnice status.
func (d *Daemon) damagedProblems() (list []api.Problem) {
	found, isDamaged := d.files.Damage(d.file.Path())
	for _, path := range Damaged(d.opts.StateDir) {
		lost, shown := whatWasIn(path)
		message := fmt.Sprintf("a file of the state was damaged, and is kept as %s: %s", path, lost)
		if isDamaged && found.Aside == path {
			message += fmt.Sprintf(" (%s)", toldCause(found))
			if d.atStart.endedDestinations > 0 {
				message += fmt.Sprintf("; %d limits on parts of the traffic, by commands or rules, could not be kept", d.atStart.endedDestinations)
			}
		}
		list = append(list, api.Problem{Message: message, Hint: "compare it with " + shown + ", set what is missing, then: sudo rm " + path})
	}
	if isDamaged && found.Aside == "" {
		list = append(list, api.Problem{
			Message: fmt.Sprintf("%s is damaged (%s), and cannot be kept under another name yet", found.Path, toldCause(found)),
			Hint:    "compare it with netnice ls, and set what is missing",
		})
	}
	return list
}
