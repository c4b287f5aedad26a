package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// object is an object in the kernel that a daemon made.
type object struct {
	kind string // prog, map or link
	id   uint32
}

// objectsOf lists the programs, maps and links that a process holds.
func objectsOf(t *testing.T, pid int) map[object]bool {
	t.Helper()
	found := map[object]bool{}
	if !holds(fmt.Sprintf("/proc/%d", pid), found) {
		t.Fatalf("no open files of process %d", pid)
	}
	return found
}

// holds adds the objects that a process holds, by its folder in /proc. It says whether the process has any file
// open.
func holds(process string, found map[object]bool) bool {
	files, _ := filepath.Glob(process + "/fdinfo/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(text)) {
			kind, rest, ok := strings.Cut(line, "_id:")
			if !ok || kind != "prog" && kind != "map" && kind != "link" {
				continue
			}
			if id, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 32); err == nil {
				found[object{kind, uint32(id)}] = true
			}
		}
	}
	return len(files) > 0
}

// exists says whether the kernel still has the object.
func (o object) exists() bool {
	var err error
	var c interface{ Close() error }
	switch o.kind {
	case "prog":
		c, err = ebpf.NewProgramFromID(ebpf.ProgramID(o.id))
	case "map":
		c, err = ebpf.NewMapFromID(ebpf.MapID(o.id))
	default:
		c, err = link.NewFromID(link.ID(o.id))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		_ = c.Close()
	}
	return true
}

// ours lists the programs of the machine with netnice's names, of any process, with their maps and links.
func ours(t *testing.T) map[object]bool { return oursBut(t, func(object) bool { return false }) }

// oursBut is ours without some programs and their maps and links.
func oursBut(t *testing.T, not func(program object) bool) map[object]bool {
	t.Helper()
	found := map[object]bool{}
	programs := map[ebpf.ProgramID]bool{}
	var err error
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			break
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil && strings.HasPrefix(info.Name, "nn_") && !not(object{"prog", uint32(id)}) {
			programs[id] = true
			found[object{"prog", uint32(id)}] = true
			if ids, ok := info.MapIDs(); ok {
				for _, id := range ids {
					found[object{"map", uint32(id)}] = true
				}
			}
		}
		_ = p.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("list programs: %v", err)
	}
	it := new(link.Iterator)
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && programs[info.Program] {
			found[object{"link", uint32(info.ID)}] = true
		}
	}
	it.Close()
	return found
}

// attached lists the programs on the root cgroup at netnice's kinds of hooks.
func attached(t *testing.T) []uint32 {
	t.Helper()
	root, err := os.Open(cgroupMount())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var ids []uint32
	for _, at := range []ebpf.AttachType{
		ebpf.AttachCGroupSockOps, ebpf.AttachCGroupSetsockopt, ebpf.AttachCGroupGetsockopt,
		ebpf.AttachCGroupInetSockCreate, ebpf.AttachCGroupInetEgress,
	} {
		got, err := link.QueryPrograms(link.QueryOptions{Target: int(root.Fd()), Attach: at})
		if err != nil {
			t.Fatalf("list programs on the root cgroup: %v", err)
		}
		for _, p := range got.Programs {
			ids = append(ids, uint32(p.ID))
		}
	}
	slices.Sort(ids)
	return ids
}

// leaves checks that no object of a daemon is left, nor any new object with netnice's names. The kernel frees
// objects with some delay: after a grace period, which is long while other daemons load programs and take CPUs.
func (s *stage) leaves(made, before map[object]bool) {
	s.t.Helper()
	suspect := added(s.t, before)
	maps.Copy(suspect, made)
	if !eventually(20*time.Second, func() bool {
		others := elsewhere()
		for o := range suspect {
			if !o.exists() || !made[o] && others[o] {
				delete(suspect, o)
			}
		}
		return len(suspect) == 0
	}) {
		s.t.Errorf("left in the kernel: %v", slices.Collect(maps.Keys(suspect)))
	}
	for _, id := range attached(s.t) {
		if made[object{"prog", id}] {
			s.t.Errorf("program %d is attached to the root cgroup still", id)
		}
	}
	if files := s.files(); len(files) > 0 {
		s.t.Errorf("left in files: %q", files)
	}
}

// added lists the new objects with netnice's names, without those of other daemons of the machine.
func added(t *testing.T, before map[object]bool) map[object]bool {
	t.Helper()
	others := elsewhere()
	return oursBut(t, func(program object) bool { return before[program] || others[program] })
}

// elsewhere lists the objects that processes hold: other daemons of the machine, which are not the test's concern.
func elsewhere() map[object]bool {
	found := map[object]bool{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		holds(p, found)
	}
	return found
}

// files lists the files in the folders that begin empty on a stage, except the log, and below netnice's own in the
// control groups.
func (s *stage) files() []string {
	s.t.Helper()
	var found []string
	s.do(func() error {
		for _, dir := range append([]string{"/sys/fs/bpf"}, private...) {
			err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
				if path != dir && !strings.HasPrefix(path, "/var/log/netnice-daemon.log") {
					found = append(found, path)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found
}
