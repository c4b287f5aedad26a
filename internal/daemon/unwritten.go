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

// A disk that is full or read-only keeps nobody from setting and lifting limits: what is wanted
// holds in the kernel, whoever asked for it is told that it is not written down, and writing is tried again
// until it succeeds. If the daemon ends before, the next one goes by the file, or by what is in force if that could be
// marked (markBehind).

const (
	// writeAgainFirst is when a file is tried again for the first time; then twice as long, up to the most.
	writeAgainFirst = time.Second
	writeAgainMost  = time.Minute
	// notWritten counts failures among the faults that netnice status shows.
	notWritten = "state_not_written"
)

// unwritten are the files of the state that could not be written or removed.
type unwritten struct {
	mu       sync.Mutex
	files    map[string]*unwrittenFile // by path
	failures uint64                    // since the daemon began
}

type unwrittenFile struct {
	err   error
	since time.Time
	last  time.Time // it was tried
	wait  time.Duration
}

// note notes how an attempt ended; news is whether that is another end than the last one's.
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

// tryNow has all that failed be tried at the next tick.
func (u *unwritten) tryNow() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.files {
		f.last = time.Time{}
	}
}

// worth reports whether a change should try to write the file: not once for each of many.
func (u *unwritten) worth(path string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.files[path]
	return f == nil || now.Sub(f.last) >= writeAgainFirst
}

// due reports whether it is time to try again a file that could not be written.
func (u *unwritten) due(path string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.files[path]
	return f != nil && now.Sub(f.last) >= f.wait
}

// of is why a file could not be written, nil if it could.
func (u *unwritten) of(path string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.files[path]; f != nil {
		return f.err
	}
	return nil
}

// all are those that fail, by path, and how often any has.
func (u *unwritten) all() (files map[string]unwrittenFile, failures uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	files = make(map[string]unwrittenFile, len(u.files))
	for path, f := range u.files {
		files[path] = *f
	}
	return files, u.failures
}

// wrote notes how writing or removing a file of the state ended, and logs what is new.
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

// unwrittenWarnings tells whoever has just changed something that it is not written down.
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

// isBehind reports whether a file is to be written again: it could not be written and it is time to try, or somebody
// else has removed or changed it.
func (d *Daemon) isBehind(path string) bool {
	if d.unwritten.of(path) != nil {
		return d.unwritten.due(path, time.Now())
	}
	return d.onDisk.lost(path)
}

// writeIfBehind writes a file again that is behind. The caller holds the lock of what is in it.
func (d *Daemon) writeIfBehind(path string, save func()) {
	if !d.isBehind(path) {
		return
	}
	if d.unwritten.of(path) == nil {
		d.log.Warn("somebody else has removed or changed a file of the state; it is written anew", "file", path)
	}
	save()
}

// writeAgain writes again the files that are behind. The file of the limits is tried by look.
func (d *Daemon) writeAgain() {
	locked := func(path string, mu *sync.Mutex, isDown *bool, save func()) {
		if !d.isBehind(path) {
			return // without the lock, which some hold for long
		}
		mu.Lock()
		defer mu.Unlock()
		if !*isDown {
			d.writeIfBehind(path, save)
		}
	}
	locked(d.powerPath(), &d.powers.mu, &d.powers.isDown, d.savePowers)
	locked(d.adaptPath(), &d.adapts.mu, &d.adapts.isDown, d.saveAdapts)
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

// unwrittenProblems are the files that fail, for netnice status.
func (d *Daemon) unwrittenProblems() (list []api.Problem) {
	if p, ok := d.folderProblem(); ok {
		return []api.Problem{p} // for which they all fail
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
