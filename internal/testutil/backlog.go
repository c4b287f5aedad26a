package testutil

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// backlogFile holds the number of packets that may wait until a processor receives them. Each processor has one such
// queue for all devices of all namespaces.
const backlogFile = "/proc/sys/net/core/netdev_max_backlog"

// raisedBacklog is ten times the kernel's own bound, as a number that no administrator would choose.
const raisedBacklog, usualBacklog = 10007, 1000

// raiseBacklog raises the bound in a file while tests run, and returns a function that restores it. The floods of
// some tests fill a queue of the usual length. A connection of another test stands still for 0.2 s if its last
// segment is dropped there. Where the file cannot be written, tests run as well.
//
// The file note has the former bound meanwhile, for the run after one that was killed. It is locked: of several runs
// at once the first one raises the bound.
func raiseBacklog(file, note string) (restore func()) {
	nothing := func() {}
	text, err := os.ReadFile(file)
	if err != nil {
		return nothing
	}
	former, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || former > raisedBacklog {
		return nothing
	}
	kept, err := os.OpenFile(note, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nothing
	}
	if unix.Flock(int(kept.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = kept.Close() // nothing was written
		return nothing
	}
	if former == raisedBacklog { // left by a run that was killed
		former = usualBacklog
		text, _ := io.ReadAll(kept) // without a note the usual bound is as good as any
		if noted, err := strconv.Atoi(string(text)); err == nil {
			former = noted
		}
	}
	write := func(packets int) error { return os.WriteFile(file, []byte(strconv.Itoa(packets)), 0o644) }
	if kept.Truncate(0) != nil {
		return nothing
	}
	if _, err := kept.WriteAt([]byte(strconv.Itoa(former)), 0); err != nil || write(raisedBacklog) != nil {
		return nothing
	}
	return func() {
		_ = write(former) // the file was writable a moment ago
		_ = os.Remove(note)
		_ = kept.Close() // the note has no use any more
	}
}
