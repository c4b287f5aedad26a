package cpushare

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/auth"
)

// command returns the command line by which the administrator gives a process the share in want.
func command(pid int, want wish) string {
	switch {
	case want.Auto.RateBytesPerSec != 0:
		return fmt.Sprintf("sudo netnice reserve --pid %d --rate %s --cpu auto", pid, auth.RateText(want.Auto.RateBytesPerSec))
	case want.SliceNS != 0:
		return "sudo " + sliceCommand(pid, time.Duration(want.PeriodNS), time.Duration(want.SliceNS), want.Extra)
	}
	text := fmt.Sprintf("sudo netnice power %d %d", pid, want.Power)
	switch {
	case want.SlotNS != 0:
		text += " --slots " + time.Duration(want.SlotNS).String()
	case want.Strict:
		text += " --strict"
	}
	return text
}

// sliceCommand returns the command line that reserves time of the processors.
func sliceCommand(pid int, period, slice time.Duration, extra bool) string {
	text := fmt.Sprintf("netnice reserve --pid %d --cpu-period %s --cpu-slice %s", pid, period, slice)
	if extra {
		text += " --cpu-extra"
	}
	return text
}
