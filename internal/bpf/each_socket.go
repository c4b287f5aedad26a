package bpf

import (
	"errors"
	"fmt"
	"maps"
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
// table of files only TCP's, in these namespaces (nil: all).
func (e eachSocket) run(m *ebpf.Map, namespaces map[uint32]bool) ([]byte, error) {
	if e.ofMap != nil {
		return run(e.ofMap, m)
	}
	out, err := run(e.files, nil)
	if err != nil {
		return nil, err
	}
	more, err := e.inNamespaces(namespaces)
	return append(out, more...), err
}

func (e eachSocket) inNamespaces(wanted map[uint32]bool) (out []byte, err error) {
	if wanted != nil && len(wanted) == 0 {
		return nil, nil
	}
	for _, path := range netnamespace.Paths(wanted) {
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
// of 262,144 entries. So that is not done again in walkRest times what it took last, and what
// was found then stands meanwhile.
type spaces struct {
	mu     sync.Mutex
	last   map[uint32]bool
	found  []SocketRecord
	walked time.Time
	took   time.Duration
}

const walkRest = 20

// walk is what is found among the connections of namespaces.
func (s *spaces) walk(e eachSocket, wanted map[uint32]bool, anew bool) ([]SocketRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(wanted, s.last)
	begin := time.Now()
	if !anew && begin.Sub(s.walked) < walkRest*s.took {
		return s.found, nil
	}
	list, err := records[SocketRecord](e.inNamespaces(wanted))
	if err == nil && !anew {
		s.found, s.walked, s.took = list, time.Now(), time.Since(begin)
	}
	return list, err
}

func (s *spaces) known() map[uint32]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint32]bool{}
	maps.Copy(out, s.last)
	return out
}

func (s *spaces) set(list []SocketRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = spacesOf(list)
}

func spacesOf(list []SocketRecord) map[uint32]bool {
	out := map[uint32]bool{}
	for _, r := range list {
		out[r.Netns] = true
	}
	return out
}

// list is run for records, of each socket one; anew: of a part of the sockets only.
func (e eachSocket) list(m *ebpf.Map, s *spaces, anew bool) ([]SocketRecord, error) {
	if e.ofMap != nil {
		return records[SocketRecord](run(e.ofMap, m))
	}
	list, err := records[SocketRecord](run(e.files, nil))
	if err != nil {
		return nil, err
	}
	more, err := s.walk(e, spacesOf(list), anew)
	return once(append(list, more...), func(r SocketRecord) uint64 { return r.Cookie }), err
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
