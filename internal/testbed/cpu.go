package testbed

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// userHZ is the unit of /proc/stat on every architecture that Linux has today.
const userHZ = 100

// MachineCPU is CPU time of the whole machine since boot, in seconds, summed
// over its CPUs.
type MachineCPU struct {
	// Busy is all time except idle time. On tickless kernels it is exact; it includes the use of other programs.
	Busy float64 `json:"busy_seconds"`
	// SoftIRQ is time in interrupts and soft interrupts, on most kernels sampled at the tick. An interrupt on top of
	// a process also counts in the process's own time, unless the kernel has IRQ_TIME_ACCOUNTING. Hence SoftIRQ must
	// not be added to ProcessCPU.
	SoftIRQ float64 `json:"softirq_seconds"`
	// Steal is time in which the host of a virtual machine ran other machines.
	Steal float64 `json:"steal_seconds,omitempty"`
}

// ReadMachineCPU reads /proc/stat.
func ReadMachineCPU() (MachineCPU, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return MachineCPU{}, fmt.Errorf("read CPU times: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return MachineCPU{}, fmt.Errorf("read CPU times: unknown first line %q of /proc/stat", line)
	}
	var v [8]float64 // user nice system idle iowait irq softirq steal
	for i := range v {
		if v[i], err = strconv.ParseFloat(fields[i+1], 64); err != nil {
			return MachineCPU{}, fmt.Errorf("read CPU times: %w", err)
		}
		v[i] /= userHZ
	}
	return MachineCPU{
		Busy:    v[0] + v[1] + v[2] + v[5] + v[6],
		SoftIRQ: v[5] + v[6],
		Steal:   v[7],
	}, nil
}

// Sub returns the time between two readings.
func (c MachineCPU) Sub(earlier MachineCPU) MachineCPU {
	return MachineCPU{Busy: c.Busy - earlier.Busy, SoftIRQ: c.SoftIRQ - earlier.SoftIRQ, Steal: c.Steal - earlier.Steal}
}

// ProcessCPU returns the CPU seconds, user and system, of the calling process.
func ProcessCPU() float64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0 // only a bad argument could make it fail
	}
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
}
