package overhead

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/netnice/netnice/lab/internal/stat"
)

// emptyProgram returns the nanoseconds that the kernel counts for a call of a program that does nothing. They are
// the cost of the counting itself. Statistics are on.
func (o *bench) emptyProgram() (ns float64, err error) {
	program, err := empty(ebpf.Tracing, "sys_enter", 0)
	if err != nil {
		return 0, err
	}
	defer program.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return 0, fmt.Errorf("attach an empty program: %w", err)
	}
	defer l.Close()
	var values []float64
	for range 20 {
		before, err := program.Stats()
		if err != nil {
			return 0, fmt.Errorf("read statistics: %w", err)
		}
		if _, err := o.measure(&cell{Kind: kindUDP, Path: "lo"}); err != nil {
			return 0, err
		}
		after, err := program.Stats()
		if err != nil {
			return 0, fmt.Errorf("read statistics: %w", err)
		}
		if runs := after.RunCount - before.RunCount; runs > 0 {
			values = append(values, float64((after.Runtime-before.Runtime)/time.Nanosecond)/float64(runs))
		}
	}
	return stat.Median(values), nil
}
