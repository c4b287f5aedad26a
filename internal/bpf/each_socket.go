package bpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/netnamespace"
)

// eachSocket is a program that runs on every socket with state, once for each way to reach them (bpf/each_socket.h).
// ofMap iterates over the map that holds the state. Where the kernel does not allow that, files iterates over the open
// files of processes, and connections over the TCP connections of a network namespace. A way that is not needed is nil.
type eachSocket struct{ ofMap, files, connections *ebpf.Program }

func eachSocketNames(name string) (ofMap, files, connections string) {
	return "nn_" + name, "nn_files_" + name, "nn_conns_" + name
}

func eachSocketOf(p map[string]*ebpf.Program, name string) eachSocket {
	ofMap, files, connections := eachSocketNames(name)
	return eachSocket{p[ofMap], p[files], p[connections]}
}

// skipUnused adds to out the iterators that are not needed on this kernel, or that it does not allow.
func skipUnused(out map[string]bool, names ...string) error {
	byMap, err := listsMaps()
	if err != nil {
		return err
	}
	for _, name := range names {
		ofMap, files, connections := eachSocketNames(name)
		if byMap {
			out[files], out[connections] = true, true
		} else {
			out[ofMap] = true
		}
	}
	return nil
}

// listsMaps reports whether programs may iterate over the values of a map. Some security modules refuse that and allow
// other iterators.
var listsMaps = sync.OnceValues(func() (bool, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "nn_lists_maps", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "bpf_sk_storage_map", License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if errors.Is(err, unix.EPERM) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probe iterators over maps: %w", err)
	}
	return true, p.Close()
})

// run visits the sockets that have state in m, and returns what the programs wrote. It may visit a socket more than
// once. If the kernel does not allow an iterator over m, run misses some sockets that are in no process's table of
// files: it finds only TCP sockets among these, in the namespaces at the given paths.
func (e eachSocket) run(m *ebpf.Map, namespaces []string) ([]byte, error) {
	if e.ofMap != nil {
		return run(e.ofMap, m)
	}
	out, err := run(e.files, nil)
	if err != nil {
		return nil, err
	}
	more, err := e.in(namespaces)
	return append(out, more...), err
}

func (e eachSocket) in(namespaces []string) (out []byte, err error) {
	for _, path := range namespaces {
		err := netnamespace.Within(path, func() error {
			more, err := run(e.connections, nil)
			out = append(out, more...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e eachSocket) Close() error {
	var errs []error
	for _, p := range []*ebpf.Program{e.ofMap, e.files, e.connections} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// spaces holds the network namespaces in which sockets with state were found last. A socket that is in no process's
// table of files any more was found in one of these namespaces before.
//
// To visit the connections of one namespace takes as long as to visit the machine's whole table of connections: 2 ms
// for 262,144 entries. Therefore the next walk waits for walkRest times the duration of a walk, and list returns the
// sockets of the last walk meanwhile.
//
// The namespaces are held open, because sockets whose data the kernel still sends may be all that is in one. The next
// list closes the namespaces in which nothing was found.
type spaces struct {
	mu     sync.Mutex
	last   map[uint32]*os.File
	found  []SocketRecord
	walked time.Time
	each   time.Duration // duration of a walk in one namespace, on an idle machine
}

const walkRest = 20

// list runs the program and returns one record for each socket with the node on its path, or for every socket if node
// is 0. The caller has set the same node for the program.
func (s *spaces) list(e eachSocket, m *ebpf.Map, node uint32) ([]SocketRecord, error) {
	if e.ofMap != nil {
		return records[SocketRecord](run(e.ofMap, m))
	}
	list, err := records[SocketRecord](run(e.files, nil))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(list)
	if node == 0 && time.Since(s.walked) >= walkRest*s.each*time.Duration(len(s.last)) {
		if err := s.walk(e); err != nil {
			return nil, err
		}
	}
	for _, r := range s.found {
		if node == 0 || slices.ContainsFunc(r.State.Path[:], func(h Hop) bool { return h.Node == node }) {
			list = append(list, r)
		}
	}
	list = once(list, func(r SocketRecord) uint64 { return r.Cookie })
	if node == 0 {
		s.release(list)
	}
	return list, nil
}

// walk visits the connections of all namespaces that are held.
func (s *spaces) walk(e eachSocket) (err error) {
	begin := time.Now()
	if s.found, err = records[SocketRecord](e.in(s.paths())); err != nil || len(s.last) == 0 {
		return err
	}
	s.walked = time.Now()
	each := s.walked.Sub(begin) / time.Duration(len(s.last))
	if s.each == 0 {
		s.each = each
	}
	s.each = min(each, 3*s.each/2) // other programs may have used the processors meanwhile
	return nil
}

// add holds the namespaces of these sockets, and makes the next list of all sockets walk.
func (s *spaces) add(list []SocketRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(list)
	s.walked = time.Time{}
}

// hold opens the namespaces of the limited ones among these sockets, unless they are open already.
func (s *spaces) hold(list []SocketRecord) {
	missing := map[uint32]bool{}
	for _, r := range list {
		if isLimited(r) && s.last[r.Netns] == nil {
			missing[r.Netns] = true
		}
	}
	if len(missing) == 0 {
		return
	}
	if s.last == nil {
		s.last = map[uint32]*os.File{}
	}
	for _, path := range netnamespace.Paths(missing) {
		f, err := os.Open(path)
		if err != nil {
			continue // the namespace has gone
		}
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) != nil || s.last[uint32(st.Ino)] != nil {
			_ = f.Close()
			continue
		}
		s.last[uint32(st.Ino)] = f
	}
}

func isLimited(r SocketRecord) bool {
	return r.State.Path[0].Node != 0 || r.State.RateBytesPerSec != 0 || r.State.ReceiveBytesPerSec != 0
}

// release closes the namespaces in which none of these sockets is limited.
func (s *spaces) release(list []SocketRecord) {
	used := map[uint32]bool{}
	for _, r := range list {
		used[r.Netns] = used[r.Netns] || isLimited(r)
	}
	maps.DeleteFunc(s.last, func(ns uint32, f *os.File) bool {
		if !used[ns] {
			_ = f.Close()
		}
		return !used[ns]
	})
}

func (s *spaces) paths() (list []string) {
	for _, f := range s.last {
		list = append(list, fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	}
	return list
}

// run runs a program on every socket. It is for programs that write no SocketRecord.
func (s *spaces) run(e eachSocket, m *ebpf.Map) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.run(m, s.paths())
}

// close closes all namespaces, and forgets the sockets that were found in them.
func (s *spaces) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(nil)
	s.found = nil
}

// once removes all but the first record of each socket. key returns what identifies the socket.
func once[T any](list []T, key func(T) uint64) []T {
	seen := make(map[uint64]bool, len(list))
	return slices.DeleteFunc(list, func(r T) bool {
		k := key(r)
		had := seen[k]
		seen[k] = true
		return had
	})
}
