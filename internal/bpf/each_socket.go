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

// eachSocket is a program that runs on every socket with state, in the ways to reach
// them (bpf/each_socket.h): by the map of these, or, where that may not be gone through, by
// processes' files and namespaces' connections. What is not needed is nil.
type eachSocket struct{ ofMap, files, connections *ebpf.Program }

func eachSocketNames(name string) (ofMap, files, connections string) {
	return "nn_" + name, "nn_files_" + name, "nn_conns_" + name
}

func eachSocketOf(p map[string]*ebpf.Program, name string) eachSocket {
	ofMap, files, connections := eachSocketNames(name)
	return eachSocket{p[ofMap], p[files], p[connections]}
}

// skipUnused notes which ways the kernel does not need, or does not let us go.
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

// listsMaps says whether programs may go through the values of a map: security modules are
// known that refuse it, and allow other iterators.
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

// run goes through the sockets that have state in m, and returns what was written: of some
// sockets more than once. Where it may not go through m, it finds of those that nobody has in a
// table of files only TCP's, in the namespaces at these paths.
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

// spaces are the network namespaces in which sockets with state were found last. One that nobody
// has in a table of files any more was found there before: to go through the connections of
// every namespace takes as long as the machine's table of them for each, 2 ms where that is
// of 262,144 entries. So that is not done again in walkRest times what it takes, and what
// was found then stands meanwhile. They are held open, for what has been left to the kernel to
// send may be all that is in one; the next look lets go of those in which nothing was found.
type spaces struct {
	mu     sync.Mutex
	last   map[uint32]*os.File
	found  []SocketRecord
	walked time.Time
	each   time.Duration // what one takes, on an idle machine
}

const walkRest = 20

// list runs the program for records, of each socket one: of those on whose path the node is that the
// program was told of, 0 = all.
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

// walk goes through the connections of all of them.
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
	s.each = min(each, 3*s.each/2) // others may have had the processors meanwhile
	return nil
}

// add has the namespaces of these sockets gone through from now on.
func (s *spaces) add(list []SocketRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(list)
	s.walked = time.Time{}
}

// hold opens the namespaces of these sockets that are not open yet.
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
			continue // it has gone
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

// release closes those in which none of these sockets is.
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

// run runs the program on every socket, where that is not of records.
func (s *spaces) run(e eachSocket, m *ebpf.Map) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.run(m, s.paths())
}

// close lets go of all of them.
func (s *spaces) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(nil)
	s.found = nil
}

// once leaves out what is of a socket that was there already: each has another key.
func once[T any](list []T, key func(T) uint64) []T {
	seen := make(map[uint64]bool, len(list))
	return slices.DeleteFunc(list, func(r T) bool {
		k := key(r)
		had := seen[k]
		seen[k] = true
		return had
	})
}
