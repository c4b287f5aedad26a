package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// hook is a program with the way to attach it. Base hooks are attached while netnice is up, the others while a node
// needs them.
type hook struct {
	name    string
	base    bool
	cgroup  ebpf.AttachType // 0 for tracing programs
	program func(*netniceObjects) *ebpf.Program
	purpose string
}

const (
	sockopsHook = "sockops"
	egressHook  = "egress"
)

func hooks() []hook {
	return []hook{
		{sockopsHook, true, ebpf.AttachCGroupSockOps, func(o *netniceObjects) *ebpf.Program { return o.NnSockops }, "paces limited TCP connections"},
		{"setsockopt", true, ebpf.AttachCGroupSetsockopt, func(o *netniceObjects) *ebpf.Program { return o.NnSetsockopt }, "socket options TCP_SNDRATE and TCP_RCVRATE"},
		{"getsockopt", true, ebpf.AttachCGroupGetsockopt, func(o *netniceObjects) *ebpf.Program { return o.NnGetsockopt }, "reads TCP_SNDRATE and TCP_RCVRATE"},
		{"sock_create", false, ebpf.AttachCGroupInetSockCreate, func(o *netniceObjects) *ebpf.Program { return o.NnSockCreate }, "whose a new socket is"},
		{"connect_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnConnectFentry }, "whose a new connection is"},
		{"listen_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnListenFentry }, "whose a listener is"},
		{"udp_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnUdpSendmsg }, "whose a UDP socket is"},
		{"udpv6_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnUdpv6Sendmsg }, "whose a UDP socket is, over IPv6"},
		{"raw_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnRawSendmsg }, "whose a raw socket is"},
		{"rawv6_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnRawv6Sendmsg }, "whose a raw socket is, over IPv6"},
		{"ping_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnPingV4Sendmsg }, "whose a ping socket is"},
		{"pingv6_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnPingV6Sendmsg }, "whose a ping socket is, over IPv6"},
		{egressHook, false, ebpf.AttachCGroupInetEgress, func(o *netniceObjects) *ebpf.Program { return o.NnEgress }, "holds first segments back"},
		{"send_tp", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnSendTp }, "who sends"},
		{"send_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnSendFentry }, "who sends"},
		{"sendpages_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnSendpagesFentry }, "who sends files"},
		{"mptcp_tp", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnMptcpTp }, "who sends by MPTCP"},
		{"mptcp_fentry", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnMptcpFentry }, "who sends by MPTCP"},
		{"fork", false, 0, func(o *netniceObjects) *ebpf.Program { return o.NnFork }, "children share the limit"},
	}
}

func linkPath(pinDir, name string) string { return filepath.Join(pinDir, "link_"+name) }

// Attach attaches and pins the base hooks, or, if base is false, the hooks that nodes need. The egress hook is not
// among them (see MoveEgress). A hook that an earlier process attached is taken over and gets this object's program.
func (o *Object) Attach(base bool) error {
	return o.attachEach(hooks(), func(h hook) bool { return h.base == base && h.name != egressHook })
}

// attachEach attaches the wanted hooks of the list. It skips hooks that this kernel does not support, and hooks that
// are attached already.
func (o *Object) attachEach(list []hook, wanted func(hook) bool) error {
	for _, h := range list {
		p := h.program(&o.netniceObjects)
		if !wanted(h) || p == nil || o.links[h.name] != nil {
			continue
		}
		l, err := o.attach(h, p)
		if err != nil {
			return fmt.Errorf("attach %s: %w", h.name, err)
		}
		o.links[h.name] = l
	}
	return nil
}

func (o *Object) attach(h hook, p *ebpf.Program) (link.Link, error) {
	path := linkPath(o.opts.PinDir, h.name)
	old, err := link.LoadPinnedLink(path, nil)
	if err == nil && h.cgroup != 0 {
		if err := old.Update(p); err != nil {
			_ = old.Close()
			return nil, fmt.Errorf("take over %s: %w", path, err)
		}
		return old, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// A tracing link cannot be updated. A new link replaces it.
	return pinnedInstead(old, path, func() (link.Link, error) { return attachHook(o.opts.CgroupRoot, h.cgroup, p) })
}

// allHooks returns the hooks of every group.
func allHooks() []hook { return slices.Concat(hooks(), destinationHooks()) }

// Detach detaches the base hooks, or all others if base is false.
func (o *Object) Detach(base bool) error {
	return o.detachAll(func(h hook) bool { return h.base == base })
}

// DetachButEgress detaches the hooks that nodes need, except the egress hook.
func (o *Object) DetachButEgress() error {
	return o.detachAll(func(h hook) bool { return !h.base && h.name != egressHook })
}

func (o *Object) detachAll(wanted func(hook) bool) error {
	var errs []error
	for _, h := range allHooks() {
		if !wanted(h) {
			continue
		}
		l := o.links[h.name]
		if l == nil {
			var err error
			if l, err = link.LoadPinnedLink(linkPath(o.opts.PinDir, h.name), nil); err != nil {
				continue
			}
		}
		if err := l.Unpin(); err != nil {
			errs = append(errs, fmt.Errorf("unpin %s: %w", h.name, err))
		}
		if err := l.Close(); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", h.name, err))
		}
		delete(o.links, h.name)
		if h.name != egressHook {
			continue
		}
		if err := os.Remove(linkPath(o.opts.PinDir, movedHook)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unpin %s: %w", movedHook, err))
		}
	}
	return errors.Join(errs...)
}

// Attached returns the hooks that this kernel supports, and whether each is attached.
func (o *Object) Attached() map[string]bool {
	out := map[string]bool{}
	for _, h := range allHooks() {
		if h.program(&o.netniceObjects) != nil {
			out[h.name] = o.links[h.name] != nil
		}
	}
	out[execHook] = o.execs != nil
	return out
}

// Purposes returns for each hook what it is for, in words for people.
func Purposes() map[string]string {
	out := map[string]string{}
	for _, h := range allHooks() {
		out[h.name] = h.purpose
	}
	out[execHook] = execPurpose
	return out
}
