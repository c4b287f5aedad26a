package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cilium/ebpf"
)

// AnyoneUp reports whether any netnice holds limits on this machine: a daemon, or pins that one has
// left, in whatever mount namespace. Each has the program that arms connections. After
// the last has gone the kernel takes a moment to let go of that: so long it is waited for.
func AnyoneUp(wait time.Duration) (bool, error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(leavePoll) {
		up, err := isLoaded(ebpf.ProgramGetNextID, programName)
		if err != nil || !up || time.Now().After(deadline) {
			return up, err
		}
	}
}

// isLoaded looks for a netnice's program that arms connections among all that the kernel has.
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
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
		case err != nil:
			return false, fmt.Errorf("look at program %d: %w", id, err)
		case name == sockopsProgram:
			return true, nil
		}
	}
}
