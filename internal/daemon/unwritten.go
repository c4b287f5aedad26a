package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
)

// A disk that is full or read-only does not prevent setting and lifting limits. The change holds in the kernel, the
// answer says that it is not written down, and the daemon tries again until it succeeds. If the daemon ends before
// that, the next one adopts the limits in force if the file could be marked (markBehind). Otherwise it adopts those in
// the file.

const (
	// writeAgainFirst is the delay before the first new attempt. The delay then doubles, up to writeAgainMost.
	writeAgainFirst = time.Second
	writeAgainMost  = time.Minute
	// notWritten counts failures among the faults that netnice status shows.
	notWritten = "state_not_written"
)

// unwritten holds the files of the state that could not be written or removed.
type unwritten struct {
	mu       sync.Mutex
	files    map[string]*unwrittenFile // by path
	failures uint64                    // since the daemon began
}

type unwrittenFile struct {
	err   error
	since time.Time
	last  time.Time // time of the last attempt
	wait  time.Duration
}

// note stores the result of an attempt; news reports whether it differs from the last result.
func (u *unwritten) note(path string, err error, now time.Time) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.files[path]
	if err == nil {
		delete(u.files, path)
		return f != nil
	}
	u.failures++
	if f == nil {
		f = &unwrittenFile{since: now, wait: writeAgainFirst / 2}
		if u.files == nil {
			u.files = map[string]*unwrittenFile{}
		}
		u.files[path] = f
	}
	news = f.err == nil || f.err.Error() != err.Error()
	f.err, f.last, f.wait = err, now, min(2*f.wait, writeAgainMost)
	return news
}

// tryNow schedules a new attempt for all failed files at the next tick.
func (u *unwritten) tryNow() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.files {
		f.last = time.Time{}
	}
}

// worth reports whether a change should try to write the file: many changes in a row do not each try.
func (u *unwritten) worth(path string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.files[path]
	return f == nil || now.Sub(f.last) >= writeAgainFirst
}

// due reports whether it is time for a new attempt on a file that could not be written.
func (u *unwritten) due(path string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.files[path]
	return f != nil && now.Sub(f.last) >= f.wait
}

// of returns the error of the last attempt on a file, nil if there was none.
func (u *unwritten) of(path string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.files[path]; f != nil {
		return f.err
	}
	return nil
}

// all returns the files that cannot be written, by path, and the number of failures so far.
func (u *unwritten) all() (files map[string]unwrittenFile, failures uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	files = make(map[string]unwrittenFile, len(u.files))
	for path, f := range u.files {
		files[path] = *f
	}
	return files, u.failures
}

// wrote stores the result of writing or removing a file of the state, and logs a change of it.
func (d *Daemon) wrote(path string, err error) {
	if !d.unwritten.note(path, err, time.Now()) {
		return
	}
	if err == nil {
		d.log.Info("the state is written again", "file", path)
		return
	}
	d.log.Warn("the state could not be written; what is wanted holds all the same, and it is tried again", "file", path, "err", err, "remedy", d.writeHint(err))
}

// unwrittenWarnings warns the caller of a change that it is not written down.
func (d *Daemon) unwrittenWarnings(path string, lifts bool) []string {
	err := d.unwritten.of(path)
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

// isBehind reports whether a file has to be written again. It could not be written and a new attempt is due, or
// somebody else has removed or changed it.
func (d *Daemon) isBehind(path string) bool {
	if d.unwritten.of(path) != nil {
		return d.unwritten.due(path, time.Now())
	}
	return d.onDisk.lost(path)
}

// writeIfBehind writes a file again that is behind. The caller holds the lock of its content.
func (d *Daemon) writeIfBehind(path string, save func()) {
	if !d.isBehind(path) {
		return
	}
	if d.unwritten.of(path) == nil {
		d.log.Warn("somebody else has removed or changed a file of the state; it is written anew", "file", path)
	}
	save()
}

// writeAgain writes the files again that are behind. look tries the file of the limits.
func (d *Daemon) writeAgain() {
	// isBehind is asked without the locks first, because some calls hold them for long.
	if path := d.cpuSharePath(); d.isBehind(path) {
		d.cpuShares.Rewrite(func(save func()) { d.writeIfBehind(path, save) })
	}
	if path := d.adaptationPath(); d.isBehind(path) {
		d.adaptation.Rewrite(func(save func()) { d.writeIfBehind(path, save) })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return
	}
	d.writeIfBehind(d.systemPath(), d.saveSystem)
	for key, list := range d.lists {
		d.writeIfBehind(d.listFile(key), func() { d.keepList(key, list) })
	}
}

// unwrittenProblems lists the files that cannot be written, for netnice status.
func (d *Daemon) unwrittenProblems() (list []api.Problem) {
	if p, ok := d.folderProblem(); ok {
		return []api.Problem{p} // the reason why all of them fail
	}
	files, _ := d.unwritten.all()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		p := api.Problem{
			Message: fmt.Sprintf("%s could not be written since %s: %v; what was changed since holds, may be lost with a restart, and is written as soon as that works",
				path, f.since.Local().Format(time.DateTime), f.err),
			Hint: d.writeHint(f.err),
		}
		if p.Hint == "" {
			p.Hint = "ls -ld " + d.opts.StateDir + "; journalctl -u netnice"
		}
		list = append(list, p)
	}
	return list
}
