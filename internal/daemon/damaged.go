package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// A file of the state that is damaged is kept under another name, and told until somebody has looked
// at it and removed it. What of it is whole may be older than what was wanted last: so in the boot in
// which it was written what is in force counts, and nothing comes back that is not. (A limit on a part of
// the traffic ends if its record is lost: the kernel side does not say what it is for.) After
// another boot nothing is in force, and what is whole is set: a limit too many can be seen and lifted, and
// where one is missing nobody would look.

const damagedSuffix = ".damaged-"

// damaged is such a file that this daemon has found.
type damaged struct {
	path  string
	cause error
	aside string // its name now; "" = not yet: it is to be replaced
	// destinations is how many limits on a part of the traffic ended, for nothing else says what they were for.
	destinations int
}

// foundDamaged notes a damaged file, before anything is written over it. The caller holds d.mu,
// or nobody else knows the daemon yet.
func (d *Daemon) foundDamaged(path string, cause error) *damaged {
	d.log.Error("a file of the state is damaged", "file", path, "err", cause)
	return &damaged{path: path, cause: cause}
}

// keepDamaged gives the damaged file of the limits a name of its own before another takes its
// place. The caller holds d.mu.
func (d *Daemon) keepDamaged() error { return d.setAside(d.damaged) }

func (d *Daemon) setAside(f *damaged) error {
	if f == nil || f.aside != "" {
		return nil
	}
	if err := d.cannot(f.path, false); err != nil {
		return err
	}
	for _, kept := range Damaged(d.opts.StateDir) { // by a daemon that could not replace it
		if areSame(kept, f.path) {
			f.aside = kept
			return nil
		}
	}
	at := f.path + damagedSuffix + time.Now().UTC().Format("20060102T150405Z")
	aside := at
	for n := 2; ; n++ {
		// A second name: if the daemon ends before the file is replaced, the next one finds it as it was.
		err := os.Link(f.path, aside)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMLINK) { // no such names there
			err = os.Rename(f.path, aside)
		}
		if errors.Is(err, fs.ErrExist) && n < 100 {
			aside = fmt.Sprintf("%s-%d", at, n)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone meanwhile is as good
			return err
		}
		break
	}
	f.aside = aside
	d.log.Error("the damaged file is kept; look at it", "file", aside)
	return nil
}

func areSame(a, b string) bool {
	one, err := os.Lstat(a)
	if err != nil {
		return false
	}
	two, err := os.Lstat(b)
	return err == nil && os.SameFile(one, two)
}

// tallies reports whether a record says what is in force: then it is not older. The caller holds d.mu,
// or nobody else knows the daemon yet.
func (d *Daemon) tallies(have enforce.NodeSpec, n *node) bool {
	want := d.specOf(n)
	// What a reservation is worth is not known yet.
	if s := n.holding().reservation(); s != (slice{}) && have.PeriodNS == s.PeriodNS {
		want.PeriodNS, want.Link, want.SliceOnly, want.Guarantee = have.PeriodNS, have.Link, have.SliceOnly, have.Guarantee
	}
	return sameSpec(have, want)
}

// Damaged lists the files of the state that were found damaged and are kept.
func Damaged(dir string) []string {
	var list []string
	for _, name := range stateFiles {
		found, _ := filepath.Glob(filepath.Join(dir, name+damagedSuffix+"*")) // the pattern is a good one
		list = append(list, found...)
	}
	slices.Sort(list)
	return list
}

// CheckState says why the next daemon would not use the state as it is, nil if it would. It changes
// nothing. Of a daemon that runs it may catch the file as it is being written: so it looks again.
func CheckState(dir, boot string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = trustFolder(dir, info)
	}
	if err != nil {
		return err
	}
	for range 3 {
		var s *state
		s, err = loadState(dir, boot)
		if err == nil && (s == nil || s.damage == nil) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s is damaged: %w", filepath.Join(dir, stateName), s.damage)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// toldCause is the cause for everybody who asks: not what it quotes of the file, which may be a destination.
func (f *damaged) toldCause() string {
	if text := f.cause.Error(); !strings.Contains(text, `"`) {
		return text
	}
	return "the daemon's log says what is wrong"
}

// whatWasIn says what may be missing where a file of the state was damaged, and which command shows what there is.
func whatWasIn(path string) (missing, shown string) {
	for _, f := range []struct{ name, missing, shown string }{
		{systemName, "what was set for the whole machine may be missing", "netnice system"},
		{powerName, "shares of the processors may be missing", "netnice power"},
		{adaptName, "hosts to which what is sent followed the path may be missing", "netnice adapt"},
	} {
		if strings.HasPrefix(filepath.Base(path), f.name) {
			return f.missing, f.shown
		}
	}
	return "limits that were wanted may be missing, or older than what was wanted last", "netnice ls"
}

// damagedProblems are the damaged files, for netnice status.
func (d *Daemon) damagedProblems() (list []api.Problem) {
	var found *damaged
	d.mu.Lock()
	if d.damaged != nil {
		now := *d.damaged
		found = &now
	}
	d.mu.Unlock()
	for _, path := range Damaged(d.opts.StateDir) {
		lost, shown := whatWasIn(path)
		message := fmt.Sprintf("a file of the state was damaged, and is kept as %s: %s", path, lost)
		if found != nil && found.aside == path {
			message += fmt.Sprintf(" (%s)", found.toldCause())
			if found.destinations > 0 {
				message += fmt.Sprintf("; %d limits on parts of the traffic, by commands or rules, could not be kept", found.destinations)
			}
		}
		list = append(list, api.Problem{Message: message, Hint: "compare it with " + shown + ", set what is missing, then: sudo rm " + path})
	}
	if found != nil && found.aside == "" {
		list = append(list, api.Problem{
			Message: fmt.Sprintf("%s is damaged (%s), and cannot be kept under another name yet", found.path, found.toldCause()),
			Hint:    "compare it with netnice ls, and set what is missing",
		})
	}
	return list
}
