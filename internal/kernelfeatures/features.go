// Package kernelfeatures finds out what the running kernel and its surroundings offer to netnice. It tries each
// feature, and never judges by the kernel's version. It owns the list of features and the attempts. It leaves nothing
// behind: no program stays loaded or attached, nothing is pinned, mounted or changed, and no module is loaded. It
// decides nothing: package doctor, and the packages that use a feature, say what follows from its absence.
package kernelfeatures

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Feature is one thing that a kernel may offer.
type Feature struct {
	Have bool
	// Err says why the feature is missing; nil if Have. It is ErrAbsent if the kernel said that it does not know the
	// feature. It is ErrUnknown if the attempt could not be made, and otherwise the kernel's own error.
	Err error
	// MinKernel is the first release of Linux that has the feature. It is "" if the feature depends on how the kernel
	// or the system is set up, not on the kernel's age.
	MinKernel string
}

var (
	// ErrAbsent says that the kernel or the system does not have the feature.
	ErrAbsent = errors.New("not there")
	// ErrUnknown says that the feature could not be looked for, for instance
	// because the caller lacks a privilege.
	ErrUnknown = errors.New("could not be looked for")
)

// Features is everything that Probe looks for.
type Features struct {
	Release string // the release in uname, for instance "6.1.0-56-amd64"
	Arch    string // Go's name, for instance "amd64"

	// Privileges of the caller.
	Root        Feature // the user is root
	CapBPF      Feature // may load programs: CAP_BPF or CAP_SYS_ADMIN
	CapNetAdmin Feature // may attach them to the network: CAP_NET_ADMIN
	CapPerfmon  Feature // may attach them to functions: CAP_PERFMON or CAP_SYS_ADMIN
	CapSysAdmin Feature // may mount, and do what BPF iterators need: CAP_SYS_ADMIN

	// The kernel and the system in general.
	BTF         Feature // the kernel describes its own types
	BPF         Feature // the bpf system call works for this caller
	JIT         Feature // programs are compiled, not interpreted
	MemcgCharge Feature // BPF memory counts against cgroups, not against the locked-memory limit
	ReadKernel  Feature // programs may read kernel memory: lockdown is not at "confidentiality"
	BPFFS       Feature // a bpf file system is mounted
	CgroupV2    Feature // cgroup v2 is mounted
	CgroupRoot  Feature // the cgroup v2 mount shows the machine's root, not a container's
	HostPIDs    Feature // this process sees the machine's process numbers, not a container's
	Systemd     Feature // systemd is the init system

	PacketSockets    []string // programs that have packet sockets, as "name (pid)"
	PacketSocketsErr error    // why PacketSockets is not known

	BPFFSPath       string   // where BPFFS is mounted
	CgroupPath      string   // where CgroupV2 is mounted
	CgroupLayout    string   // one of the Cgroup constants
	Lockdown        string   // "none", "integrity", "confidentiality"; "" if it could not be read
	UnprivilegedBPF string   // kernel.unprivileged_bpf_disabled: "0", "1", "2"; "" if there is none
	Congestion      []string // TCP congestion controls that a program may choose

	// Pacing TCP.
	SockOps       Feature // program type sockops
	HeaderOptions Feature // sockops sees each transmit
	TCPSock       Feature // sockops may read the whole TCP socket
	CgroupSKB     Feature // program type cgroup_skb: each packet that a cgroup sends
	CgroupSock    Feature // program type cgroup/sock_create
	CgroupSockopt Feature // program type cgroup/setsockopt
	SetRetval     Feature // a cgroup program may choose the error that the caller sees
	CBFlags       Feature // callbacks can be switched on for a connection that is open already
	FQ            Feature // queueing discipline fq
	BBR           Feature // congestion control bbr

	// Means to find the socket owner.
	RawTracepoints     Feature // programs at tracepoints with typed arguments (tp_btf)
	SendTracepoint     Feature // tracepoint tcp_sendmsg_locked
	ForkTracepoint     Feature // tracepoint sched_process_fork
	ExitTracepoint     Feature // tracepoint sched_process_exit
	Fentry             Feature // programs at the entry of functions
	SendFentry         Feature // programs at the entry of tcp_sendmsg_locked
	SendpagesFentry    Feature // programs at the entry of do_tcp_sendpages, which sendfile and splice used before 6.5
	ConnectFentry      Feature // programs at the entry of tcp_connect
	ListenFentry       Feature // programs at the entry of inet_csk_listen_start
	TaskFromPID        Feature // a program can look a process up by its number
	IterTask           Feature // iterator over processes
	IterTaskFile       Feature // iterator over open files
	IterTaskFileFilter Feature // iterator over the open files of one process only
	IterTCP            Feature // iterator over TCP sockets
	IterSKStorage      Feature // iterator over the sockets that hold a value of ours

	// Maps.
	SKStorage       Feature // values kept with sockets
	TaskStorage     Feature // values kept with processes
	TaskStorageSock Feature // a cgroup/sock_create program can read values kept with processes
	CgroupStorage   Feature // values kept with cgroups
	LRUHash         Feature
	RingBuf         Feature
	LPMTrie         Feature
	SpinLock        Feature

	// Shaping, for traffic that pacing cannot limit.
	TrafficClass Feature // program type sched_cls
	TCX          Feature // tcx links
	Veth         Feature // device type veth
	HTB          Feature // queueing discipline htb
	Clsact       Feature // queueing discipline clsact
	SockLookup   Feature // a sched_cls program can find the socket of a packet

	// CPU shares.
	CPUController Feature // the CPU controller is in a mounted cgroup hierarchy
	CPUQuota      Feature // groups can have a ceiling
	CPUBurst      Feature // groups can make up for the unused part of a ceiling
	Deadline      Feature // scheduling policy SCHED_DEADLINE

	CPUPath   string // where CPUController is mounted
	CPULayout string // layout of CPUPath: CgroupLayoutV1 or CgroupLayoutV2
}

// Ways in which cgroups can be mounted.
const (
	CgroupLayoutV2     = "v2"     // v2 alone
	CgroupLayoutHybrid = "hybrid" // v1 controllers beside v2
	CgroupLayoutV1     = "v1"     // v1 alone
	CgroupLayoutNone   = "none"   // nothing mounted
)

// Named is a feature with its name and title, for tables.
type Named struct {
	Name  string // the field's name
	Title string // for people
	Feature
}

// Probe tries everything. It takes well under a second if the caller is root. Without privileges most attempts end in
// ErrUnknown. The context ends Probe between two attempts: features that it has not tried are ErrUnknown.
func Probe(ctx context.Context) *Features {
	f := &Features{Arch: runtime.GOARCH}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		f.Release = unix.ByteSliceToString(name.Release[:])
	}
	probeSystem(f)
	probePacketSockets(f)
	p := newProber(f)
	for _, a := range p.attempts(f) {
		a.feature.MinKernel = a.since
		err := ctx.Err()
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		} else {
			err = a.try()
		}
		a.feature.set(err)
	}
	return f
}

func (f *Feature) set(err error) {
	f.Have, f.Err = err == nil, err
}

// Unknown reports whether Probe could not find out if the kernel has the feature.
func (f Feature) Unknown() bool { return errors.Is(f.Err, ErrUnknown) }
