package bpf

import (
	"fmt"

	"github.com/cilium/ebpf/link"
)

// The program that reports what is executed is of use to a daemon only: it is not
// pinned, and goes with it.
const (
	execHook    = "exec"
	execMap     = "execs"
	execPurpose = "rules apply at exec"
)

// AttachExecs has the programs that are executed be reported in Execs, or no more.
func (o *Object) AttachExecs(on bool) error {
	switch {
	case on == (o.execs != nil):
		return nil
	case !on:
		l := o.execs
		o.execs = nil
		if err := l.Close(); err != nil {
			return fmt.Errorf("detach %s: %w", execHook, err)
		}
		return nil
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: o.NnExec})
	if err != nil {
		return fmt.Errorf("attach %s: %w", execHook, err)
	}
	o.execs = l
	return nil
}

// Exec decodes a record of Execs.
func Exec(sample []byte) (e ExecEvent, ok bool) {
	list, _ := records[ExecEvent](sample, nil) // which has no error without one
	if len(list) == 0 {
		return ExecEvent{}, false
	}
	return list[0], true
}
