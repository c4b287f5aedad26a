package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
)

// A disk that is full or read-only does not prevent setting and lifting limits. The change holds in the kernel, the
// answer says that it is not written down, and the daemon tries again until it succeeds. If the daemon ends before
// that, the next one adopts the limits in force if the file could be marked as behind. Otherwise it adopts those in
// the file.

// notWritten counts failures among the faults that netnice status shows.
const notWritten = "state_not_written"

// unwrittenWarnings warns the caller of a change that it is not written down.
func (d *Daemon) unwrittenWarnings(path string, lifts bool) []string {
	err := d.files.Unwritten(path)
	if err == nil {
		return nil
	}
	text := "this holds, and may be lost with a restart of the daemon or the machine; the state could not be written: "
	if lifts {
		text = "what is lifted may be back after a restart of the daemon or the machine; the state could not be written: "
	}
	text += err.Error() + ", and is tried again"
	hint := d.writeHint(err)
	if strings.Contains(hint, "\n") {
		hint = "netnice status says what helps"
	}
	if hint != "" {
		text += " (" + hint + ")"
	}
	return []string{text}
}

// writeAgain writes the files again that are behind. SaveIfDue tries the file of the limits.
func (d *Daemon) writeAgain() {
	// IsBehind is asked without the locks first, because some calls hold them for long.
	if path := d.cpuSharePath(); d.files.IsBehind(path) {
		d.cpuShares.Rewrite(func(save func()) { d.files.WriteIfBehind(path, save) })
	}
	if path := d.adaptationPath(); d.files.IsBehind(path) {
		d.adaptation.Rewrite(func(save func()) { d.files.WriteIfBehind(path, save) })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return
	}
	d.files.WriteIfBehind(d.systemPath(), d.saveSystem)
	d.lists.WriteAgain()
}

// unwrittenProblems lists the files that cannot be written, for netnice status.
func (d *Daemon) unwrittenProblems() (list []api.Problem) {
	if p, ok := d.folderProblem(); ok {
		return []api.Problem{p} // the reason why all of them fail
	}
	files := d.files.AllUnwritten()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		p := api.Problem{
			Message: fmt.Sprintf("%s could not be written since %s: %v; what was changed since holds, may be lost with a restart, and is written as soon as that works",
				path, f.Since.Local().Format(time.DateTime), f.Err),
			Hint: d.writeHint(f.Err),
		}
		if p.Hint == "" {
			p.Hint = "ls -ld " + d.opts.StateDir + "; journalctl -u netnice"
		}
		list = append(list, p)
	}
	return list
}
