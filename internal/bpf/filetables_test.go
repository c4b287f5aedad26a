package bpf

import (
	"slices"
	"testing"
)

func TestEachTable(t *testing.T) {
	t.Parallel()
	tables := []fileTable{
		{Table: 1, Tid: 10, Tgid: 10, Uid: 5},
		{Table: 1, Tid: 11, Tgid: 11, Uid: 5},
		{Table: 1, Tid: 12, Tgid: 12, Uid: 5, Tree: 7},   // limited otherwise
		{Table: 1, Tid: 13, Tgid: 13, Uid: 6},            // so is another user's
		{Table: 1, Tid: 14, Tgid: 14, Uid: 5, Cgroup: 9}, // and one of another cgroup
		{Table: 2, Tid: 21, Tgid: 20, Uid: 5},            // a thread with a table of its own
	}
	for _, c := range []struct {
		name   string
		tgids  []uint32
		want   []uint32
		shared bool
	}{
		{"all", nil, []uint32{10, 12, 13, 14, 21}, true},
		{"two that share", []uint32{10, 11}, []uint32{10}, true},
		{"limited otherwise", []uint32{11, 12}, []uint32{11, 12}, false},
		{"a thread's own", []uint32{20}, []uint32{21}, false},
	} {
		got, shared := eachTable(tables, c.tgids)
		if !slices.Equal(got, c.want) || shared != c.shared {
			t.Errorf("%s: %v, shared %t, want %v, %t", c.name, got, shared, c.want, c.shared)
		}
	}
}
