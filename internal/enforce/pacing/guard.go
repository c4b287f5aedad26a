package pacing

import (
	"github.com/netnice/netnice/internal/bpf"
)

// Guard is a process that outlives this one: it has the egress hook on the root
// when this one has ended, since nobody follows limited processes to other cgroups
// then (see cover.go).
type Guard interface {
	Alive() bool
	// Close has the guard look now, and end.
	Close() error
}

// RunGuard is what such a process does: it waits until in ends. See bpf.Guard.
var RunGuard = bpf.Guard

// guarded reports whether the hook may be below the root: a guard is there, or
// none is wanted.
func (k *Kernel) guarded() bool {
	if k.opts.StartGuard == nil || k.guard != nil && k.guard.Alive() {
		return true
	}
	if k.guard != nil {
		_ = k.guard.Close() // ended already
	}
	g, err := k.opts.StartGuard()
	if err != nil {
		k.guard = nil
		k.opts.Logger.Warn("the egress hook stays on the root: no guard", "err", err)
		return false
	}
	k.guard = g
	return true
}

func (k *Kernel) endGuard() error {
	if k.guard == nil {
		return nil
	}
	err := k.guard.Close()
	k.guard = nil
	return err
}
