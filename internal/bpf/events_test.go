package bpf

import "testing"

func TestCoverEvent(t *testing.T) {
	for _, c := range []struct {
		event  []byte
		cgroup uint64
		ok     bool
	}{
		{[]byte{4, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 0, 0, 0}, 263, true},
		{[]byte{2, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 0, 0, 0}, 0, false},
		{[]byte{4, 0, 0, 0}, 0, false},
		{nil, 0, false},
	} {
		if cgroup, ok := CoverEvent(c.event); cgroup != c.cgroup || ok != c.ok {
			t.Errorf("event %v asks for %d, %t, want %d, %t", c.event, cgroup, ok, c.cgroup, c.ok)
		}
	}
}
