package testutil

import (
	"os"
	"strconv"
	"strings"
)

// backlogFile holds the number of packets that may wait until a processor receives them. Each processor has one such
// queue for all devices of all namespaces.
const backlogFile = "/proc/sys/net/core/netdev_max_backlog"

// raisedBacklog is ten times the kernel's own bound, as a number that no administrator would choose.
const raisedBacklog, usualBacklog = 10007, 1000

// raiseBacklog raises the bound in a file while tests run, and returns a function that restores it. The floods of
// some tests fill a queue of the usual length. A connection of another test stands still for 0.2 s if its last
// segment is dropped there. Where the file cannot be written, tests run as well.
func raiseBacklog(file string) (restore func()) {
	nothing := func() {}
	text, err := os.ReadFile(file)
	if err != nil {
		return nothing
	}
	former, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return nothing
	case former == raisedBacklog: // left by a run that was killed
		former = usualBacklog
	case former > raisedBacklog:
		return nothing
	}
	write := func(packets int) error { return os.WriteFile(file, []byte(strconv.Itoa(packets)), 0o644) }
	if write(raisedBacklog) != nil {
		return nothing
	}
	return func() { _ = write(former) } // the file was writable a moment ago
}
