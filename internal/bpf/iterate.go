package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// run drives an iterator to its end and returns what it wrote.
func run(p *ebpf.Program, m *ebpf.Map) ([]byte, error) {
	it, err := link.AttachIter(link.IterOptions{Program: p, Map: m})
	if err != nil {
		return nil, fmt.Errorf("attach iterator: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("open iterator: %w", err)
	}
	defer r.Close()
	return readToEnd(r)
}

// readToEnd returns all that an iterator writes. A read ends with EAGAIN after a million objects for which the iterator
// wrote nothing, and the next read continues from there. Any user can have that many files open.
func readToEnd(r io.Reader) ([]byte, error) {
	var out bytes.Buffer
	for {
		if _, err := out.ReadFrom(r); !errors.Is(err, unix.EAGAIN) {
			return out.Bytes(), err
		}
	}
}

// runOfProcess drives a task iterator over one thread group. The IterOptions of cilium/ebpf cannot name a thread group,
// so the system call makes the link. Kernels before 6.1 do not know the filter: the iterator visits all tasks there,
// and alone is false.
func runOfProcess(p *ebpf.Program, tgid uint32) (out []byte, alone bool, err error) {
	info := [4]uint32{0, tgid, 0, 0} // union bpf_iter_link_info: task {tid, pid, pid_fd}
	create := struct {
		prog, target, attach, flags uint32
		info                        uint64
		infoLen                     uint32
		_                           [36]byte
	}{
		prog: uint32(p.FD()), attach: uint32(ebpf.AttachTraceIter),
		info: uint64(uintptr(unsafe.Pointer(&info[0]))), infoLen: 16,
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(&create)), unsafe.Sizeof(create))
	runtime.KeepAlive(&info)
	if errno == unix.EINVAL || errno == unix.E2BIG {
		out, err = run(p, nil)
		return out, false, err
	}
	if errno != 0 {
		return nil, true, fmt.Errorf("attach iterator to process %d: %w", tgid, errno)
	}
	defer unix.Close(int(fd))
	open := [2]uint32{uint32(fd), 0}
	itfd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_ITER_CREATE, uintptr(unsafe.Pointer(&open[0])), unsafe.Sizeof(open))
	if errno != 0 {
		return nil, true, fmt.Errorf("open iterator: %w", errno)
	}
	f := os.NewFile(itfd, "iterator")
	defer f.Close()
	out, err = readToEnd(f)
	return out, true, err
}

// records decodes the structs that an iterator wrote. Their Go types have the same layout. The only error that it
// returns is err.
func records[T any](b []byte, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	var one T
	size := int(unsafe.Sizeof(one))
	out := make([]T, len(b)/size)
	if len(out) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(out)*size), b)
	}
	return out, nil
}

// fewProcesses is the largest number of processes for which a tree is marked process by process. For larger trees it is
// faster to visit every task of the machine.
const fewProcesses = 32

// mostLooks bounds the passes over all tasks that find the members of a deep tree.
const mostLooks = 16

// Adopted is what AdoptTasks found.
type Adopted struct {
	// Members are the processes that were visited. It is nil if those of the whole machine were visited.
	Members []uint32
	Nests   bool // other trees are nested in the new tree
	Cgroups map[uint64]bool

	far   bool // a process is so deep that another pass is needed
	found int  // tasks found in this pass
}

func (a *Adopted) add(out []byte) {
	list, _ := records[MemberRecord](out, nil) // records returns only the error that it is given
	a.far, a.found = false, 0
	for _, r := range list {
		if r.Far != 0 {
			a.far = true
			continue
		}
		a.found++
		a.Nests = a.Nests || r.Nests != 0
		a.Cgroups[r.Cgroup] = true
	}
}

// AdoptTasks marks the process root and its running descendants as members of the tree node. Members of the node outer
// (0 = none) move into node. Trees that are nested in node get it as their parent.
func (o *Object) AdoptTasks(root, node, outer uint32) (a Adopted, err error) {
	a.Cgroups = map[uint64]bool{}
	if err := o.AdoptRootTgid.Set(root); err != nil {
		return a, fmt.Errorf("set iterator argument: %w", err)
	}
	if err := o.AdoptNode.Set(node); err != nil {
		return a, fmt.Errorf("set iterator argument: %w", err)
	}
	if err := o.AdoptOuter.Set(outer); err != nil {
		return a, fmt.Errorf("set iterator argument: %w", err)
	}
	if hasChildren() {
		a.Members, err = descend(root, fewProcesses, childrenOf("/proc"), func(tgid uint32) (bool, error) {
			out, alone, err := runOfProcess(o.NnAdoptTasks, tgid)
			a.add(out)
			return alone, err
		})
	}
	// There are two passes, so that the second one sees a child that was forked during the first. More passes follow
	// while some tasks are too deep to tell and each pass finds more. Parents come first in a pass, unless process ids
	// were used again.
	before := 0
	for pass := 0; (pass < 2 || a.far && a.found > before && pass < mostLooks) && a.Members == nil && err == nil; pass++ {
		before = a.found
		var out []byte
		out, err = run(o.NnAdoptTasks, nil)
		a.add(out)
	}
	if err != nil {
		return a, fmt.Errorf("mark the processes below %d: %w", root, err)
	}
	return a, nil
}

// ReleaseTasks hands the members of a tree node to outer (0 = none).
func (o *Object) ReleaseTasks(node, outer uint32) error {
	if err := o.ReleaseNode.Set(node); err != nil {
		return fmt.Errorf("set iterator argument: %w", err)
	}
	if err := o.AdoptOuter.Set(outer); err != nil {
		return fmt.Errorf("set iterator argument: %w", err)
	}
	for range 2 {
		if _, err := run(o.NnReleaseTasks, nil); err != nil {
			return fmt.Errorf("release the processes of node %d: %w", node, err)
		}
	}
	return nil
}

// ListTasks returns a record for each living thread that is in a tree.
func (o *Object) ListTasks() ([]TaskRecord, error) {
	return records[TaskRecord](run(o.NnListTasks, nil))
}

// AdoptFiles makes the paths of the sockets that the given processes hold, or, if tgids is nil, of those that any
// process holds. rings is true if only io_uring rings hold some of the sockets. The caller then calls AdoptUrings in
// each network namespace, and ForgetUrings after that.
func (o *Object) AdoptFiles(tgids []uint32) (rings bool, err error) {
	if err := o.ForgetUrings(); err != nil { // a killed daemon may have left some
		return false, err
	}
	if err := o.UringNoted.Set(uint32(0)); err != nil {
		return false, fmt.Errorf("set iterator argument: %w", err)
	}
	for _, p := range []*ebpf.Program{o.NnAdoptFiles, o.NnAdoptUrings} {
		if tgids == nil {
			if _, err := run(p, nil); err != nil {
				return false, fmt.Errorf("adopt open sockets: %w", err)
			}
		}
		for _, tgid := range tgids {
			if _, _, err := runOfProcess(p, tgid); err != nil && !os.IsNotExist(err) {
				return false, fmt.Errorf("adopt open sockets of process %d: %w", tgid, err)
			}
		}
	}
	var noted uint32
	if err := o.UringNoted.Get(&noted); err != nil {
		return false, fmt.Errorf("read what an iterator found: %w", err)
	}
	return noted > 0, nil
}

// AdoptUrings makes the paths of the sockets that only io_uring rings hold, in the calling thread's network namespace.
func (o *Object) AdoptUrings() error {
	for _, p := range []*ebpf.Program{o.NnAdoptUringTcp, o.NnAdoptUringUdp} {
		list, err := records[SocketRecord](run(p, nil))
		if err != nil {
			return fmt.Errorf("adopt sockets of io_uring: %w", err)
		}
		o.spaces.add(list)
	}
	return nil
}

// ForgetUrings removes what AdoptFiles has noted about io_uring rings and their sockets.
func (o *Object) ForgetUrings() error {
	var owner netniceNnUringOwner
	if err := empty(o.UringSockets, &owner); err != nil {
		return fmt.Errorf("forget sockets of io_uring: %w", err)
	}
	var seen uint8
	if err := empty(o.UringsSeen, &seen); err != nil {
		return fmt.Errorf("forget rings of io_uring: %w", err)
	}
	return nil
}

// empty deletes all entries of a map whose keys are addresses. one is a buffer for a value of the map.
func empty(m *ebpf.Map, one any) error {
	var (
		address uint64
		keys    []uint64
	)
	for it := m.Iterate(); it.Next(&address, one); {
		keys = append(keys, address)
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// FollowFiles finds sockets that have passed to another process than the one that used them, or whose user or cgroup
// has changed. walk is the number of this walk; it increases by one each time. again is true if another walk is needed
// to be sure about some sockets.
func (o *Object) FollowFiles(walk uint32) (again bool, err error) {
	if err := o.FollowWalk.Set(walk); err != nil {
		return false, fmt.Errorf("set iterator argument: %w", err)
	}
	out, err := run(o.NnFollowFiles, nil)
	if err != nil {
		return false, fmt.Errorf("look who has sockets: %w", err)
	}
	return len(out) > 0, nil
}

// ReleaseRates makes AdoptConnections remove the rates that sockets have of their own.
func (o *Object) ReleaseRates() error {
	if err := o.netniceVariables.ReleaseRates.Set(uint32(1)); err != nil {
		return fmt.Errorf("set iterator argument: %w", err)
	}
	return nil
}

// AdoptConnections arms and releases the connections of the calling thread's network namespace.
func (o *Object) AdoptConnections() error {
	if _, err := run(o.NnAdoptConnections, nil); err != nil {
		return fmt.Errorf("adopt open connections: %w", err)
	}
	return nil
}

// AssignSockets gives each socket the node of its own that SocketNodes has for it, and removes such nodes from other
// sockets.
func (o *Object) AssignSockets() error {
	if _, err := o.spaces.run(o.assignSockets, o.Sockets); err != nil {
		return fmt.Errorf("give sockets their nodes: %w", err)
	}
	return nil
}

// ListSockets returns every TCP socket with state, and UDP sockets with a rate, of all namespaces.
func (o *Object) ListSockets() ([]SocketRecord, error) {
	return o.ListSocketsOf(0)
}

// ListSocketsOf returns the sockets of ListSockets that have the node on their path, or all if node is 0.
func (o *Object) ListSocketsOf(node uint32) ([]SocketRecord, error) {
	if err := o.ListNode.Set(node); err != nil {
		return nil, fmt.Errorf("set iterator argument: %w", err)
	}
	return o.spaces.list(o.listSockets, o.Sockets, node)
}

// ForgetSockets closes the namespaces that ListSockets has opened. The caller has removed the last node, so that no
// socket is limited any more.
func (o *Object) ForgetSockets() { o.spaces.close() }

// ListEverySocket returns every socket with state, including all non-TCP sockets.
func (o *Object) ListEverySocket() (list []SocketRecord, err error) {
	if err := o.ListOthers.Set(uint32(1)); err != nil {
		return nil, fmt.Errorf("set iterator argument: %w", err)
	}
	defer func() { err = errors.Join(err, o.ListOthers.Set(uint32(0))) }()
	return o.ListSockets()
}
