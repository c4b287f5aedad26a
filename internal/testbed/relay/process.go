package relay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// processName is the argv[0] that tells a program to run as the relay.
const processName = "netnice-relay"

// These are the descriptors of the relay process.
const (
	deviceA = 3
	deviceB = 4
)

// order is a line to the relay process. The first one configures it; the relay answers each by a line.
type order struct {
	Set *Config `json:"set,omitempty"` // nil requests only the counters
}

type answer struct {
	Counters [2]Counters `json:"counters"`
}

// MaybeRun turns the process into a relay if Start started it as one, and then never returns. Otherwise it does
// nothing.
func MaybeRun() {
	if len(os.Args) != 1 || os.Args[0] != processName {
		return
	}
	if err := run(os.Stdin, os.Stdout); !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // EOF: the starting process is gone, or has closed the pipe
}

// run returns io.EOF when its input ends, or an error.
func run(stdin *os.File, stdout io.Writer) error {
	// The name is for readers of ps; any other would do.
	_ = os.WriteFile("/proc/self/comm", []byte("nn-relay"), 0)
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // only orders allocate memory
	urgent()
	lines := bufio.NewReader(stdin)
	out := json.NewEncoder(stdout)
	for _, fd := range []int{deviceA, deviceB} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("set device not to block: %w", err)
		}
	}
	var both [2]*direction
	obey := func() error {
		// An order is one write of less than a pipe's atomic size.
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		var a answer
		switch {
		case o.Set != nil && both[0] == nil:
			both[0] = newDirection(deviceA, deviceB, o.Set.AtoB, o.Set.Seed, 1)
			both[1] = newDirection(deviceB, deviceA, o.Set.BtoA, o.Set.Seed, 2)
		case o.Set != nil:
			both[0].set(o.Set.AtoB)
			both[1].set(o.Set.BtoA)
		}
		for i, d := range both {
			a.Counters[i] = d.counters()
		}
		return out.Encode(a)
	}
	if err := obey(); err != nil {
		return err
	}
	return forward(both, int(stdin.Fd()), obey)
}

// urgent gives the calling thread priority over others, and exact timers. Without the right to that the relay works
// too, only less exactly.
func urgent() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}, 0)
	if err != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	}
}
