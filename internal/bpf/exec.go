package bpf

import (
	"fmt"

	"github.com/cilium/ebpf/link"
)

// Only a running daemon uses the program that reports each exec. The program is not pinned, and ends with the daemon.
const (
	execHook    = "exec"
	execMap     = "execs"
	execPurpose = "rules apply at exec"
)

// AttachExecs starts or stops the reports of executed programs in Execs.
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
	list, _ := records[ExecEvent](sample, nil) // records returns only the error that it is given
	if len(list) == 0 {
		return ExecEvent{}, false
	}
	return list[0], true
}
