package bpf

import (
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// oneThread and oneProcess say whose files an iterator walks.
func oneThread(tid uint32) [4]uint32   { return [4]uint32{tid, 0, 0, 0} } // union bpf_iter_link_info: task {tid, pid, pid_fd}
func oneProcess(tgid uint32) [4]uint32 { return [4]uint32{0, tgid, 0, 0} }

// walkFiles drives a program over the open files of the given processes, or, without any, of all. A table
// that several processes share is walked once for all that are limited alike: else anybody could make
// a walk take as long as they like.
// list is the program that lists the tables.
func walkFiles(list, p *ebpf.Program, tgids []uint32) (out []byte, err error) {
	var tables []fileTable
	if len(tgids) != 1 && initialPIDs() {
		if tables, err = records[fileTable](run(list, nil)); err != nil {
			return nil, fmt.Errorf("list tables of open files: %w", err)
		}
	}
	each, shared := eachTable(tables, tgids)
	if shared {
		return walkEach(p, each, oneThread)
	}
	return walkTasks(p, tgids)
}

// walkTasks drives a program over the tasks of the given processes, nil = all.
func walkTasks(p *ebpf.Program, tgids []uint32) ([]byte, error) {
	if tgids == nil {
		return run(p, nil)
	}
	return walkEach(p, tgids, oneProcess)
}

func walkEach(p *ebpf.Program, ids []uint32, of func(uint32) [4]uint32) (out []byte, err error) {
	for _, id := range ids {
		wrote, alone, err := runOf(p, of(id))
		if err != nil && !os.IsNotExist(err) { // it has ended
			return out, fmt.Errorf("look at process %d: %w", id, err)
		}
		out = append(out, wrote...)
		if !alone {
			break // the kernel cannot say which: all were walked
		}
	}
	return out, nil
}

// eachTable returns a thread for each table that one of the processes (nil = all) has, one for all that
// are limited alike. shared says whether any is left out.
func eachTable(tables []fileTable, tgids []uint32) (threads []uint32, shared bool) {
	wanted := make(map[uint32]bool, len(tgids))
	for _, t := range tgids {
		wanted[t] = true
	}
	seen := make(map[fileTable]bool, len(tables))
	for _, t := range tables {
		if tgids != nil && !wanted[t.Tgid] {
			continue
		}
		tid := t.Tid
		t.Tid, t.Tgid = 0, 0
		if seen[t] {
			shared = true
			continue
		}
		seen[t] = true
		threads = append(threads, tid)
	}
	slices.Sort(threads)
	return threads, shared
}

// initialPIDs reports whether this process sees all processes by the numbers that the kernel has for them.
func initialPIDs() bool {
	to, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && to == "pid:[4026531836]"
}
