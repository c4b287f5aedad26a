package bpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// MeterDevice has what leaves a device in the namespace of the calling thread, and no limited
// socket is charged for, taken off the limit on that device. The name is the attachment's; one of
// a former process is taken over. A kernel without tcx (before 6.6) answers
// ebpf.ErrNotSupported.
func (o *Object) MeterDevice(ifindex int, name string) error {
	return o.meters.attachedTCX(name, link.TCXOptions{Interface: ifindex, Program: o.NnMeter, Attach: ebpf.AttachTCXEgress})
}

// Unmeter ends what MeterDevice began; the device may have gone.
func (o *Object) Unmeter(name string) error { return o.meters.Detach(name) }

// Metered reports whether MeterDevice has attached something by that name.
func (o *Object) Metered(name string) bool { return o.meters.links[name] != nil }

// StaleMeters lists the attachments of former processes that were not taken over.
func (o *Object) StaleMeters(prefix string) []string { return o.meters.Stale(prefix) }

// UnpinMeter removes one of those.
func (o *Object) UnpinMeter(name string) error { return o.meters.Unpin(name) }
