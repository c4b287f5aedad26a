// Package identity turns the subject that a caller named into the key that the kernel side matches.
// A subject is a pid, a user, a cgroup, a systemd unit, a container or the host. The package
// reads /proc, the cgroup tree and systemd, and asks internal/account for users. It never
// decides permissions and never sets a limit.
package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/prometheus/procfs"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

// ErrNotFound says that no such process, user, cgroup or unit exists.
var ErrNotFound = errors.New("not found")

// Resolved is a subject as the kernel side matches it.
type Resolved struct {
	// Subject in its one canonical form: the pid of the process, not of a
	// thread; the user's name where there is one; the cgroup's path below the
	// cgroup v2 mount; the unit's full name.
	Subject api.Subject
	Kind    enforce.Kind
	// Key is enforce.NodeSpec.Subject: tgid, cgroup id, uid, or 0 for the host.
	// It is 0 for a unit or a container that is not running, and for a link that is not there.
	Key uint64
	// StartBoottimeNS is the process's start, rounded down to TickNS.
	StartBoottimeNS uint64
	// UID is the real user of the process, or the user; 0 for everything else.
	UID uint32
	// Name is for people: command, user or unit name.
	Name string
	// Dir is the absolute folder of a cgroup or of a running unit.
	Dir string
}

// Pending reports whether the subject exists in name only: a unit or a container
// that is not running has no cgroup yet, and a device may come.
func (r Resolved) Pending() bool { return r.Renewed() && r.Key == 0 }

// Renewed reports whether the same subject may have another Key later.
func (r Resolved) Renewed() bool { return r.Kind == enforce.KindCgroup || r.Kind == enforce.KindLink }

// Named reports whether the subject is a name that outlives its cgroup or device. The subject then also means the
// next cgroup or device of that name.
func (r Resolved) Named() bool {
	return r.Subject.Kind == api.KindUnit || r.Subject.Kind == api.KindContainer || r.Kind == enforce.KindLink
}

// Same reports whether both mean the same subject to the kernel.
func (r Resolved) Same(o Resolved) bool {
	if r.Kind != o.Kind {
		return false
	}
	if r.Pending() || o.Pending() {
		return r.Subject == o.Subject
	}
	return r.Key == o.Key && (r.Kind != enforce.KindTree || SameStart(r.StartBoottimeNS, o.StartBoottimeNS))
}

// Options name the sources; the zero value means the running machine.
type Options struct {
	Proc       string // mount point of procfs; default /proc
	CgroupRoot string // mount point of cgroup v2; default: found in the mount table
	VarLib     string // folder of the container engines' lists; default /var/lib
	Systemd    Systemd
	Accounts   *account.Directory // users and groups; default account.Machine()
}

// Systemd answers questions that only the service manager can answer.
type Systemd interface {
	// Running reports whether systemd is this machine's service manager.
	Running() bool
	// ControlGroup returns the cgroup of a unit below the cgroup v2 mount: ""
	// for one that is not running. An unknown unit is ErrNotFound.
	ControlGroup(ctx context.Context, unit string) (string, error)
	// StartScope moves processes into a new scope unit; slice may be "".
	StartScope(ctx context.Context, name, slice string, pids []int, props ...sdbus.Property) error
	// SetProperties changes a running unit until it ends.
	SetProperties(ctx context.Context, unit string, props ...sdbus.Property) error
}

// Resolver resolves subjects. It is safe for concurrent use.
type Resolver struct {
	proc     procfs.FS
	procRoot string
	cgroup   string
	varLib   string
	systemd  Systemd
	accounts *account.Directory
	known    knownContainers
	listed   engineLists
}

// New returns a Resolver. It fails when procfs is not mounted.
func New(opts Options) (*Resolver, error) {
	if opts.Proc == "" {
		opts.Proc = procfs.DefaultMountPoint
	}
	if opts.Systemd == nil {
		opts.Systemd = SystemBus{}
	}
	if opts.VarLib == "" {
		opts.VarLib = "/var/lib"
	}
	if opts.Accounts == nil {
		opts.Accounts = account.Machine()
	}
	proc, err := procfs.NewFS(opts.Proc)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	return &Resolver{proc: proc, procRoot: opts.Proc, cgroup: opts.CgroupRoot, varLib: opts.VarLib, systemd: opts.Systemd, accounts: opts.Accounts}, nil
}

// Systemd returns the service manager that the resolver asks.
func (r *Resolver) Systemd() Systemd { return r.systemd }

// Resolve finds the present meaning of s. Errors are *api.Error. Their code is not_found if the subject does not exist,
// and bad_request if it is badly written. The code is not_supported if this machine cannot serve the subject.
func (r *Resolver) Resolve(ctx context.Context, s api.Subject) (Resolved, error) {
	switch s.Kind {
	case api.KindPID:
		pid, err := strconv.Atoi(s.ID)
		if err != nil || pid <= 0 {
			return Resolved{}, badSubject(s, "a pid is a number from 1 on", "ps -e")
		}
		if pid == 1 {
			return Host(), nil
		}
		return r.process(pid)
	case api.KindUser:
		return r.user(ctx, s.ID)
	case api.KindCgroup:
		return r.cgroupPath(s.ID)
	case api.KindUnit:
		return r.unit(ctx, s.ID)
	case api.KindContainer:
		return r.container(s.ID)
	case api.KindHost:
		if s.ID != "" {
			return Resolved{}, badSubject(s, "host takes no name", "netnice show --host")
		}
		return Host(), nil
	case api.KindLink:
		return r.link(s.ID)
	case api.KindRule:
		return Resolved{}, badSubject(s, "a rule's limit is set in its file", "netnice rules list; netnice show "+s.String())
	case api.KindGroup: // only the daemon knows groups
		return Resolved{}, notFound(fmt.Sprintf("there is no group %s", s.ID), "netnice ls; netnice fair --help")
	case api.KindTo:
		return Resolved{}, badSubject(s, "a part of the traffic is no process, user or cgroup", "use --pid, --user, --cgroup, --unit, --container, --link or --host")
	}
	return Resolved{}, badSubject(s, "unknown kind", "use --pid, --user, --cgroup, --unit, --container, --link or --host")
}

// Canonical returns the one form in which Resolve would return s, as far as
// the text alone tells: for subjects that are gone.
func (r *Resolver) Canonical(s api.Subject) api.Subject {
	switch s.Kind {
	case api.KindPID:
		if pid, err := strconv.Atoi(s.ID); err == nil {
			return PIDSubject(pid)
		}
	case api.KindUnit:
		s.ID = unitName(s.ID)
	case api.KindLink:
		s.ID = linkID(s.ID)
	case api.KindCgroup:
		if root, err := r.CgroupRoot(); err == nil {
			s.ID = belowMount(root, s.ID)
		}
	}
	return s
}

// Host returns the machine as a subject.
func Host() Resolved {
	return Resolved{Subject: api.Subject{Kind: api.KindHost}, Kind: enforce.KindHost, Name: "host"}
}

// BootID returns the id of this boot of the machine.
func (r *Resolver) BootID() (string, error) {
	return readTrimmed(r.procRoot + "/sys/kernel/random/boot_id")
}

// KernelRelease returns the kernel's release, as uname -r prints it.
func (r *Resolver) KernelRelease() string {
	release, err := readTrimmed(r.procRoot + "/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return release
}

func badSubject(s api.Subject, why, hint string) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("subject %q: %s", s, why), Hint: hint}
}

func notFound(message, hint string) error {
	return &api.Error{Code: api.CodeNotFound, Message: message, Hint: hint, Cause: ErrNotFound}
}

// IsNotFound reports whether err says that the subject does not exist.
func IsNotFound(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}
