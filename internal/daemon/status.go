package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/netnice/netnice/api"
)

// Status implements apiserver.Backend.
func (d *Daemon) Status(context.Context) (api.Status, error) {
	counters, err := d.kernel.Counters()
	if err != nil {
		return api.Status{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	_, counters[notWritten] = d.unwritten.all()
	now, err := d.sampler.stats()
	if err != nil {
		return api.Status{}, err
	}
	d.mu.Lock()
	unknown, meterOff := d.renderUnknown(now), d.system.InputMeterOff
	d.mu.Unlock()
	return api.Status{
		Version: api.Version, Release: d.opts.Release, PID: os.Getpid(), Since: d.started,
		OnDemand: d.opts.OnDemand, Kernel: d.resolver.KernelRelease(), Nodes: d.count(), Powers: d.cpuShares.Count(),
		InputMeterOff: meterOff, Programs: d.programs(), Unknown: unknown, Counters: counters,
		Problems: append(d.unwrittenProblems(), d.damagedProblems()...),
	}, nil
}
