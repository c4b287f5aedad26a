package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attachHook attaches a program to a cgroup. If kind is 0, the program is a tracing program, which names its own
// target.
func attachHook(cgroup string, kind ebpf.AttachType, p *ebpf.Program) (link.Link, error) {
	if kind == 0 {
		return link.AttachTracing(link.TracingOptions{Program: p})
	}
	return link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: kind, Program: p})
}

// pinnedInstead attaches and pins a link that replaces an old one (nil = there is none). The old link ends after the
// new one is attached. It stays pinned if the new one cannot be attached or pinned.
func pinnedInstead(old link.Link, path string, attach func() (link.Link, error)) (link.Link, error) {
	if old != nil {
		defer old.Close() // its pin, if it still has one, keeps it
	}
	l, err := attach()
	if err != nil {
		return nil, err
	}
	if old != nil {
		_ = old.Unpin()
	}
	if err := l.Pin(path); err != nil {
		err = errors.Join(fmt.Errorf("pin %s: %w", path, err), l.Close())
		if old != nil {
			err = errors.Join(err, old.Pin(path))
		}
		return nil, err
	}
	return l, nil
}
