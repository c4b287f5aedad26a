package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

func TestChildrenOf(t *testing.T) {
	proc := t.TempDir()
	for path, text := range map[string]string{"7/task/7": "8 9 ", "7/task/71": "10", "8/task/8": ""} {
		dir := filepath.Join(proc, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "children"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(proc, "7/task/72"), 0o755); err != nil { // this thread has ended
		t.Fatal(err)
	}
	got := childrenOf(proc)(7)
	slices.Sort(got)
	if !slices.Equal(got, []uint32{8, 9, 10}) {
		t.Error(got)
	}
	if got := append(childrenOf(proc)(8), childrenOf(proc)(99)...); len(got) > 0 {
		t.Error(got)
	}
}

// family is a tree of processes. order records in which order they were marked, and asked for their children.
type family struct {
	children map[uint32][]uint32
	order    []string
	second   map[uint32][]uint32 // children that the second look finds instead
	asked    map[uint32]int
}

func (f *family) of(p uint32) []uint32 {
	f.order = append(f.order, "ask "+strconv.Itoa(int(p)))
	f.asked[p]++
	if list, ok := f.second[p]; ok && f.asked[p] > 1 {
		return slices.Clone(list)
	}
	return slices.Clone(f.children[p])
}

func (f *family) mark(p uint32) (bool, error) {
	f.order = append(f.order, "mark "+strconv.Itoa(int(p)))
	return true, nil
}

func TestDescend(t *testing.T) {
	f := &family{children: map[uint32][]uint32{1: {3, 2}, 3: {4}, 4: {6}, 6: {7}}, second: map[uint32][]uint32{1: {2, 3}}, asked: map[uint32]int{}}
	got, err := descend(1, 6, f.of, f.mark)
	if err != nil || !slices.Equal(got, []uint32{1, 3, 2, 4, 6, 7}) {
		t.Errorf("%v %v", got, err)
	}
	for p := range f.asked {
		mark, ask := slices.Index(f.order, "mark "+strconv.Itoa(int(p))), slices.Index(f.order, "ask "+strconv.Itoa(int(p)))
		if mark < 0 || mark > ask {
			t.Errorf("%d: its children were looked for before it was marked: %s", p, strings.Join(f.order, ", "))
		}
	}
	f.asked = map[uint32]int{}
	if got, err := descend(1, 5, f.of, f.mark); got != nil || err != nil {
		t.Errorf("more than asked for: %v %v", got, err)
	}
	for name, second := range map[string]map[uint32][]uint32{"one more": {7: {8}}, "one less": {1: {2}}, "another": {4: {5}}} {
		f.asked, f.second = map[uint32]int{}, second
		if got, err := descend(1, 99, f.of, f.mark); got != nil || err != nil {
			t.Errorf("%s at the second look: %v %v", name, got, err)
		}
	}
	all := func(uint32) (bool, error) { return false, nil }
	if got, err := descend(1, 5, f.of, all); got != nil || err != nil {
		t.Errorf("all are marked already: %v %v", got, err)
	}
	wrong := errors.New("wrong")
	if _, err := descend(1, 5, f.of, func(uint32) (bool, error) { return true, wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
}

func TestRecords(t *testing.T) {
	want := []TaskRecord{{Tgid: 1, Node: 2}, {Tgid: 3, Node: 4}}
	size := int(unsafe.Sizeof(want[0]))
	b := unsafe.Slice((*byte)(unsafe.Pointer(&want[0])), 2*size)
	got, err := records[TaskRecord](b, nil)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := records[TaskRecord](b[:size+1], nil); err != nil || len(got) != 1 {
		t.Errorf("a part of a record counts: %v %v", got, err)
	}
	if got, err := records[TaskRecord](nil, nil); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}
