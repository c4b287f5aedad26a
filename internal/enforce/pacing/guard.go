package pacing

import (
	"github.com/netnice/netnice/internal/bpf"
)

// Guard is a process that outlives this one. It moves the egress hook to the root when this process has ended,
// since no daemon then tracks limited processes into other cgroups (see cover.go).
type Guard interface {
	Alive() bool
	// Close makes the guard check at once, and end.
	Close() error
}

// RunGuard is the main function of such a process. It waits until its input ends. See bpf.Guard.
var RunGuard = bpf.Guard

// guarded reports whether the hook may be below the root. It may if a guard runs, or if the options ask for none.
func (k *Kernel) guarded() bool {
	if k.opts.StartGuard == nil || k.guard != nil && k.guard.Alive() {
		return true
	}
	if k.guard != nil {
		_ = k.guard.Close() // its process has ended already
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
