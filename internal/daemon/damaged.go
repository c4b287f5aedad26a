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
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// A damaged file of the state is kept under another name, and netnice status reports it until somebody has examined and
// removed it. Its undamaged part may be older than the last request. In the boot in which the file was written, the
// limits in force therefore count, and no other limit comes back. A limit on a destination ends if its record
// is lost: the kernel side does not say which part it is for. After another boot no limit is in force, and the daemon
// sets the undamaged part. A superfluous limit can be seen and lifted; a missing one would go unnoticed.

const damagedSuffix = ".damaged-"

// damaged is a damaged file that this daemon has found.
type damaged struct {
	path  string
	cause error
	aside string // its other name; "" = none yet: it needs one before it is replaced
	// destinations is the number of limits on a destination that ended, because no other record says which
	// part.
	destinations int
}

// foundDamaged notes a damaged file before anything overwrites it. The caller holds d.mu, or is the only one that knows
// the daemon yet.
func (d *Daemon) foundDamaged(path string, cause error) *damaged {
	d.log.Error("a file of the state is damaged", "file", path, "err", cause)
	return &damaged{path: path, cause: cause}
}

// keepDamaged gives the damaged file of the limits another name before a new file replaces it. The caller holds d.mu.
func (d *Daemon) keepDamaged() error { return d.setAside(d.damaged) }

func (d *Daemon) setAside(f *damaged) error {
	if f == nil || f.aside != "" {
		return nil
	}
	if err := d.cannot(f.path, false); err != nil {
		return err
	}
	for _, kept := range Damaged(d.opts.StateDir) { // kept by a daemon that could not replace it
		if areSame(kept, f.path) {
			f.aside = kept
			return nil
		}
	}
	at := f.path + damagedSuffix + time.Now().UTC().Format("20060102T150405Z")
	aside := at
	for n := 2; ; n++ {
		// The file gets a second name: if the daemon ends before it replaces the file, the next daemon still finds it.
		err := os.Link(f.path, aside)
		// Some file systems have no hard links.
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMLINK) {
			err = os.Rename(f.path, aside)
		}
		if errors.Is(err, fs.ErrExist) && n < 100 {
			aside = fmt.Sprintf("%s-%d", at, n)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have gone meanwhile
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

// tallies reports whether a record agrees with the limit in force, and so is not older. The caller holds d.mu, or is
// the only one that knows the daemon yet.
func (d *Daemon) tallies(have enforce.NodeSpec, n *node) bool {
	want := d.specOf(n)
	// The value of a reservation in bytes/s is not known yet.
	if s := n.holding().Reservation(); s != (limit.Slice{}) && have.PeriodNS == s.PeriodNS {
		want.PeriodNS, want.Link, want.SliceOnly, want.Guarantee = have.PeriodNS, have.Link, have.SliceOnly, have.Guarantee
	}
	return sameSpec(have, want)
}

// Damaged lists the damaged files of the state that are kept.
func Damaged(dir string) []string {
	var list []string
	for _, name := range stateFiles {
		found, _ := filepath.Glob(filepath.Join(dir, name+damagedSuffix+"*")) // the pattern is well-formed
		list = append(list, found...)
	}
	slices.Sort(list)
	return list
}

// CheckState says why the next daemon would not use the state as it is, nil if it would. It changes nothing. It tries
// again after a failure, because a running daemon may be writing the file just then.
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

// toldCause returns the cause in a form that everybody may see. It leaves out quotations from the file, which may name
// a destination.
func (f *damaged) toldCause() string {
	if text := f.cause.Error(); !strings.Contains(text, `"`) {
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
