package queuepair

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestCPUMask(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want string
	}{
		{[]int{0, 1}, "00000003"},
		{[]int{31}, "80000000"},
		{[]int{2, 32}, "00000001,00000004"},
		{[]int{64}, "00000001,00000000,00000000"},
	} {
		var set unix.CPUSet
		for _, cpu := range c.cpus {
			set.Set(cpu)
		}
		if got := cpuMask(&set); got != c.want {
			t.Errorf("%v: %s, want %s", c.cpus, got, c.want)
		}
	}
}
