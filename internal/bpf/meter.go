package bpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// MeterDevice attaches the program that charges the limit on a device for the egress that no limited socket is charged
// for. The device is in the network namespace of the calling thread. name is the name of the attachment; an attachment
// of that name by an earlier process is taken over. The error is ebpf.ErrNotSupported on a kernel without tcx (before
// 6.6).
func (o *Object) MeterDevice(ifindex int, name string) error {
	return o.meters.attachedTCX(name, link.TCXOptions{Interface: ifindex, Program: o.NnMeter, Attach: ebpf.AttachTCXEgress})
}

// Unmeter detaches what MeterDevice attached. The device may have gone.
func (o *Object) Unmeter(name string) error { return o.meters.Detach(name) }

// Metered reports whether MeterDevice has made an attachment of that name.
func (o *Object) Metered(name string) bool { return o.meters.links[name] != nil }

// StaleMeters lists the attachments of earlier processes that this process has not taken over.
func (o *Object) StaleMeters(prefix string) []string { return o.meters.Stale(prefix) }

// UnpinMeter removes an attachment that StaleMeters lists.
func (o *Object) UnpinMeter(name string) error { return o.meters.Unpin(name) }
