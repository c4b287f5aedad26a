package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// MeterDevice has what leaves a device in the namespace of the calling thread, and no limited
// socket is charged for, taken off the limit on that device. The name is the attachment's; one of
// a former process is taken over. A kernel without tcx (before 6.6) answers
// ebpf.ErrNotSupported.
func (o *Object) MeterDevice(ifindex int, name string) error {
	if o.meters.links[name] != nil {
		return nil
	}
	p := o.NnMeter
	err := o.meters.attached(name, p, true, func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p, Attach: ebpf.AttachTCXEgress})
	})
	if err != nil {
		return fmt.Errorf("attach to device %d: %w", ifindex, err)
	}
	return nil
}

// Unmeter ends what MeterDevice began; the device may have gone.
func (o *Object) Unmeter(name string) error { return o.meters.Detach(name) }

// StaleMeters lists the attachments of former processes that were not taken over.
func (o *Object) StaleMeters(prefix string) []string { return o.meters.Stale(prefix) }

// UnpinMeter removes one of those.
func (o *Object) UnpinMeter(name string) error { return o.meters.Unpin(name) }
