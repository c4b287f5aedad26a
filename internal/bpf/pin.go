package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attachHook attaches a program to a cgroup, or, with 0 as the kind, where a
// tracing program says itself.
func attachHook(cgroup string, kind ebpf.AttachType, p *ebpf.Program) (link.Link, error) {
	if kind == 0 {
		return link.AttachTracing(link.TracingOptions{Program: p})
	}
	return link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: kind, Program: p})
}

// pinnedInstead attaches and pins a link in the place of an old one (nil = there
// is none), which goes when the new one stands.
func pinnedInstead(old link.Link, path string, attach func() (link.Link, error)) (link.Link, error) {
	l, err := attach()
	if err != nil {
		if old != nil {
			_ = old.Close()
		}
		return nil, err
	}
	if old != nil {
		_ = old.Unpin()
		_ = old.Close()
	}
	if err := l.Pin(path); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("pin %s: %w", path, err)
	}
	return l, nil
}
