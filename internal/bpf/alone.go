package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// sockopsProgram is in every release the program that arms connections.
const sockopsProgram = "nn_sockops"

// The kernel takes programs off a moment after they were let go of.
const (
	leaveTimeout = time.Second
	leavePoll    = 20 * time.Millisecond
)

// UpError says that another netnice, with pins of its own, is attached to the
// same sockets. Each of two would take back what the other sets on them.
type UpError struct {
	CgroupRoot string
	PinDir     string // of the other one; "" if it is not in sight
}

func (e *UpError) Error() string {
	if e.PinDir == "" {
		return fmt.Sprintf("netnice is up already, with its programs on %s and its pins out of sight (another mount namespace?)", e.CgroupRoot)
	}
	return "netnice is up already, with its programs in " + e.PinDir
}

// Hint names the remedies.
func (e *UpError) Hint() string {
	hint := "use it: netnice --socket ITS_SOCKET ... (pgrep -af 'netnice daemon' shows which)\n" +
		"or end it: netnice --socket ITS_SOCKET down"
	if e.PinDir != "" {
		hint += "; where its daemon has died: netnice down --pin-dir " + e.PinDir
	}
	return hint
}

// CheckAlone returns an *UpError if another netnice is attached to the cgroup
// or above it. It changes nothing.
func CheckAlone(opts Options) error {
	deadline := time.Now().Add(leaveTimeout)
	for {
		attached, err := attachedSockops(opts.CgroupRoot)
		if err != nil {
			return fmt.Errorf("look for another netnice on %s: %w", opts.CgroupRoot, err)
		}
		others := othersOf(attached, ownPrograms(opts.PinDir, sockopsHook))
		if len(others) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return &UpError{CgroupRoot: opts.CgroupRoot, PinDir: pinDirOf(others, bpffsRoot(opts.PinDir), "/sys/fs/bpf")}
		}
		time.Sleep(leavePoll)
	}
}

// enterWait is for how long another netnice that is coming up is waited for: it
// loads its programs, which takes seconds where the CPUs are busy.
const enterWait = 20 * time.Second

// Enter is CheckAlone for one who then comes up himself: until the returned file
// is closed nobody else is let in. Two that came at the same moment would not see
// each other's programs.
func Enter(opts Options) (*os.File, error) {
	f, err := lockWithin(enterWait, leavePoll, func() (f *os.File, again bool, err error) {
		f, err = lockDir(opts.CgroupRoot)
		return f, errors.Is(err, ErrInUse), err
	})
	if err != nil {
		return nil, fmt.Errorf("come up alone: %w", err)
	}
	if err := CheckAlone(opts); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// attachment is a program on a cgroup.
type attachment struct {
	id   ebpf.ProgramID
	name string
}

// othersOf returns which of the attached programs another netnice has; own are
// those of this one's folder. Whose own is attached
// comes back to limits in force, after a crash: it was let in before.
func othersOf(attached []attachment, own []ebpf.ProgramID) []ebpf.ProgramID {
	var others []ebpf.ProgramID
	for _, a := range attached {
		if slices.Contains(own, a.id) {
			return nil
		}
		if a.name == sockopsProgram {
			others = append(others, a.id)
		}
	}
	return others
}

// attachedSockops lists the programs that connections in the cgroup meet: also
// those of the cgroups above it.
func attachedSockops(cgroup string) ([]attachment, error) {
	dir, err := os.Open(cgroup)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	query := link.QueryOptions{
		Target: int(dir.Fd()), Attach: ebpf.AttachCGroupSockOps, QueryFlags: unix.BPF_F_QUERY_EFFECTIVE,
	}
	found, err := link.QueryPrograms(query)
	for try := 1; errors.Is(err, unix.ENOSPC) && try < 10; try++ { // more of them than a moment ago
		found, err = link.QueryPrograms(query)
	}
	if err != nil {
		return nil, err
	}
	var out []attachment
	for _, p := range found.Programs {
		name, err := programName(p.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("look at program %d: %w", p.ID, err)
		}
		out = append(out, attachment{p.ID, name})
	}
	return out, nil
}

func programName(id ebpf.ProgramID) (string, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

// pinnedProgram returns the program of a pinned link, 0 if there is none.
func pinnedProgram(path string) ebpf.ProgramID {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return 0
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0
	}
	return info.Program
}

// pinDirOf looks up to two levels below the roots for the folder in which a
// netnice has pinned one of the programs, "" = none.
func pinDirOf(programs []ebpf.ProgramID, roots ...string) string {
	for _, root := range roots {
		for _, pattern := range []string{"*", "*/*"} {
			// No root, no finds: the pattern is a good one.
			paths, _ := fs.Glob(os.DirFS(root), linkPath(pattern, sockopsHook))
			for _, path := range paths {
				path = filepath.Join(root, path)
				if slices.Contains(programs, pinnedProgram(path)) {
					return filepath.Dir(path)
				}
			}
		}
	}
	return ""
}

// bpffsRoot returns the top of the BPF file system that the pin folder is in,
// or is to be in.
func bpffsRoot(pinDir string) string {
	root := filepath.Dir(pinDir)
	for {
		above := filepath.Dir(root)
		if ok, err := isBPFFS(above); above == root || err != nil || !ok {
			return root
		}
		root = above
	}
}
