package bpf

import "github.com/cilium/ebpf"

// destinationHooks returns the hooks that see to which peer a UDP socket sends. They are attached while a rule is for a
// destination. The sockops program knows the peers of TCP connections.
func destinationHooks() []hook {
	return []hook{
		{"connect4", false, ebpf.AttachCGroupInet4Connect, func(o *netniceObjects) *ebpf.Program { return o.NnConnect4 }, "to whom UDP goes"},
		{"connect6", false, ebpf.AttachCGroupInet6Connect, func(o *netniceObjects) *ebpf.Program { return o.NnConnect6 }, "to whom UDP goes, over IPv6"},
		{"sendmsg4", false, ebpf.AttachCGroupUDP4Sendmsg, func(o *netniceObjects) *ebpf.Program { return o.NnSendmsg4 }, "to whom a datagram goes"},
		{"sendmsg6", false, ebpf.AttachCGroupUDP6Sendmsg, func(o *netniceObjects) *ebpf.Program { return o.NnSendmsg6 }, "to whom a datagram goes, over IPv6"},
	}
}

// AttachDestinations attaches the hooks of destinationHooks, or detaches them.
func (o *Object) AttachDestinations(on bool) error {
	if !on {
		return o.detachAll(func(h hook) bool { return h.destination() })
	}
	return o.attachEach(destinationHooks(), func(hook) bool { return true })
}

func (h hook) destination() bool {
	switch h.cgroup {
	case ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect, ebpf.AttachCGroupUDP4Sendmsg, ebpf.AttachCGroupUDP6Sendmsg:
		return true
	}
	return false
}
