package shaping

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

// A program (bpf/meter.h) meters the packets that leave a limited device and are charged to no limited socket. The same
// program writes the DSCP of limits into the packets of limited sockets.

const meterPrefix = "meter_device_"

func meterPin(ns, index uint32) string { return fmt.Sprintf("%s%d_%d", meterPrefix, ns, index) }

// meter attaches the program to the device of a link's node. Kernels before 6.6 cannot attach a program beside those of
// others. On these kernels such traffic is not counted.
func (k *Kernel) meter(spec enforce.NodeSpec) error {
	if spec.Kind != enforce.KindLink {
		return nil
	}
	ns, index := enforce.LinkOf(spec.Subject)
	path := netnamespace.PathOf(ns)
	if path == "" {
		return nil // the namespace has gone with its devices
	}
	err := netnamespace.Within(path, func() error { return k.base.MeterDevice(int(index), meterPin(ns, index)) })
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return nil
	case err != nil:
		return fmt.Errorf("count what leaves by a link: %w", err)
	}
	return nil
}

func (k *Kernel) unmeter(spec enforce.NodeSpec) error {
	if spec.Kind != enforce.KindLink {
		return nil
	}
	ns, index := enforce.LinkOf(spec.Subject)
	if k.marks.has(ns, int(index)) {
		return nil
	}
	return k.base.Unmeter(meterPin(ns, index))
}

// resumeMeters takes over the attachments of an earlier process, and removes those without a node.
func (k *Kernel) resumeMeters() error {
	specs, err := k.Nodes()
	if err != nil {
		return err
	}
	var errs []error
	for _, spec := range specs {
		errs = append(errs, k.meter(spec))
	}
	errs = append(errs, k.lookAtMarks())
	for _, name := range k.base.StaleMeters(meterPrefix) {
		errs = append(errs, k.base.UnpinMeter(name))
	}
	return errors.Join(errs...)
}
