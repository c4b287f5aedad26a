package doctor

import (
	"fmt"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/kernelfeatures"
)

// processors checks how netnice power, and the commands like it, keep a share of the processors.
func processors(f *kernelfeatures.Features) api.Check {
	const name = "shares of the processors"
	switch {
	case f.CPUController.Unknown():
		return unknown(name)
	case !f.CPUController.Have:
		return api.Check{
			Name: name, State: Degraded,
			Found:  "no mounted cgroup hierarchy has the CPU controller",
			Means:  "netnice power, exec and reserve --cpu-slice are refused. Limits on bandwidth do not need it.",
			Remedy: "cat /proc/cgroups shows whether the kernel has it; mount -t cgroup2 none /sys/fs/cgroup",
		}
	}
	found := fmt.Sprintf("groups in cgroup %s, at %s", f.CPULayout, f.CPUPath)
	if f.Systemd.Have {
		found = fmt.Sprintf("scopes of systemd's, in cgroup %s, at %s", f.CPULayout, f.CPUPath)
	}
	g := look(part{"ceilings (CONFIG_CFS_BANDWIDTH)", f.CPUQuota}, part{"bursts", f.CPUBurst}, part{"SCHED_DEADLINE", f.Deadline})
	switch {
	case len(g.unknown) > 0:
		return unknown(name)
	case len(g.absent) == 0:
		return api.Check{Name: name, State: OK, Found: found + "; bursts; SCHED_DEADLINE for --strict"}
	}
	var means []string
	for _, gap := range []struct {
		feature kernelfeatures.Feature
		means   string
	}{
		{f.CPUQuota, "No more than a share of the processors cannot be had, only priorities."},
		{f.CPUBurst, "Programs that fork get up to an eighth less than their share: what a processor is handed and does not use is lost."},
		{f.Deadline, "--strict keeps a ceiling as without it."},
	} {
		if !gap.feature.Have {
			means = append(means, gap.means)
		}
	}
	check := api.Check{Name: name, State: Degraded, Found: found + "; not there: " + strings.Join(append(g.absent, g.reasons...), ", "), Means: strings.Join(means, " ")}
	check.Remedy = g.remedy(f)
	if !f.Deadline.Have && f.CPUQuota.Have && f.CPUBurst.Have {
		check.Remedy = "sysctl -w kernel.sched_rt_runtime_us=950000, or a distribution's stock kernel"
	}
	return check
}
