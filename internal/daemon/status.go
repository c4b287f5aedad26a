package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
)

// Status implements apiserver.Backend.
func (d *Daemon) Status(context.Context) (api.Status, error) {
	counters, err := d.kernel.Counters()
	if err != nil {
		return api.Status{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	counters[notWritten] = d.files.Failures()
	unknown, err := d.observe.Unknown()
	if err != nil {
		return api.Status{}, err
	}
	now := d.observe.Snapshot()
	return api.Status{
		Version: api.Version, Release: d.opts.Release, PID: os.Getpid(), Since: d.started,
		OnDemand: d.opts.OnDemand, Kernel: d.resolver.KernelRelease(), Nodes: now.Count(), Powers: d.cpuShares.Count(),
		InputMeterOff: now.Shared().InputMeterOff, Programs: d.programs(), Unknown: unknown, Counters: counters,
		Problems: append(d.unwrittenProblems(), d.damagedProblems()...),
	}, nil
}

// programs lists the kernel programs by name.
func (d *Daemon) programs() []api.Program {
	// Some kernel sides know the purpose of their programs.
	describer, _ := d.kernel.(interface{ ProgramFor(name string) string })
	list := []api.Program{}
	for name, attached := range d.kernel.Attached() {
		p := api.Program{Name: name, Attached: attached}
		if describer != nil {
			p.For = describer.ProgramFor(name)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b api.Program) int { return strings.Compare(a.Name, b.Name) })
	return list
}
