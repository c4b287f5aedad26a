package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cilium/ebpf"
)

// AnyoneUp reports whether any netnice holds limits on this machine, in whatever mount namespace. The limits may belong
// to a running daemon, or to pins that a daemon has left. Each netnice has the program that arms connections. The
// kernel releases that program a moment after the last netnice has gone; AnyoneUp waits for that, at most for wait.
func AnyoneUp(wait time.Duration) (bool, error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(leavePoll) {
		up, err := isLoaded(ebpf.ProgramGetNextID, programName)
		if err != nil || !up || time.Now().After(deadline) {
			return up, err
		}
	}
}

// isLoaded reports whether the kernel has a program of netnice that arms connections.
func isLoaded(next func(ebpf.ProgramID) (ebpf.ProgramID, error), nameOf func(ebpf.ProgramID) (string, error)) (bool, error) {
	for id := ebpf.ProgramID(0); ; {
		var err error
		id, err = next(id)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list the kernel's programs: %w", err)
		}
		name, err := nameOf(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the program has gone meanwhile
		case err != nil:
			return false, fmt.Errorf("look at program %d: %w", id, err)
		case name == sockopsProgram:
			return true, nil
		}
	}
}
