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

// sockopsProgram is the name of the program that arms connections. The name is the same in every release.
const sockopsProgram = "nn_sockops"

// The kernel detaches programs a moment after their last reference is closed. leaveTimeout bounds the wait for that,
// and leavePoll is the interval between two checks.
const (
	leaveTimeout = time.Second
	leavePoll    = 20 * time.Millisecond
)

// UpError says that another netnice instance, with pins of its own, is attached to the same sockets. Each of the two
// instances would undo what the other one sets on a socket.
type UpError struct {
	CgroupRoot string
	PinDir     string // the other instance's pin folder; "" if it was not found
}

func (e *UpError) Error() string {
	if e.PinDir == "" {
		return fmt.Sprintf("netnice is up already, with its programs on %s and its pins out of sight (another mount namespace?)", e.CgroupRoot)
	}
	return "netnice is up already, with its programs in " + e.PinDir
}

// Hint names the remedies.
func (e *UpError) Hint() string {
	hint := useOtherHint
	if e.PinDir != "" {
		hint += "; where its daemon has died: sudo netnice down --pin-dir " + e.PinDir
	}
	return hint
}

// CheckAlone returns an *UpError if another netnice is attached to opts.CgroupRoot or to a cgroup that contains it.
// CheckAlone changes nothing. It waits up to leaveTimeout for an instance whose programs the kernel is detaching.
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

// enterWait bounds how long Enter waits for another netnice that is starting. Loading its programs takes seconds where
// the CPUs are busy.
const enterWait = 20 * time.Second

// Enter does what CheckAlone does, for a caller that starts netnice next. No other instance can enter until the caller
// closes the returned file. Without this lock, two instances that start at the same moment would not see each other's
// programs.
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

// othersOf returns the attached programs that belong to another netnice. own are the programs in the pin folder of this
// instance. The result is nil if one of them is attached: the instance then comes back after a crash to limits in
// force, and has passed this check before.
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

// attachedSockops lists the sockops programs that run for connections in the cgroup. The list includes programs on the
// cgroups that contain it.
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
	for try := 1; errors.Is(err, unix.ENOSPC) && try < 10; try++ { // there are more programs than a moment ago
		found, err = link.QueryPrograms(query)
	}
	if err != nil {
		return nil, err
	}
	var out []attachment
	for _, p := range found.Programs {
		name, err := programName(p.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the program has gone meanwhile
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

// pinDirOf searches up to two levels below the roots for the folder where a netnice has pinned one of the programs. It
// returns "" if there is none.
func pinDirOf(programs []ebpf.ProgramID, roots ...string) string {
	for _, root := range roots {
		for _, pattern := range []string{"*", "*/*"} {
			// A root that does not exist gives no paths. The pattern is valid, so there is no error.
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

// bpffsRoot returns the top of the BPF file system that contains the pin folder, or will contain it.
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
