// Package kernelfeatures finds out what the running kernel and its surroundings
// offer to netnice, by trying each thing and never by the kernel's version. It
// owns the list of features and the attempts; it leaves nothing behind (no
// program stays loaded or attached, nothing is pinned, mounted or changed, no
// module gets loaded) and decides nothing: what follows from a missing feature
// is said by package doctor and by those who use the feature.
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
	// Err says why not; nil if Have. It is ErrAbsent if the kernel said that it
	// does not know the thing, ErrUnknown if the attempt could not be made, or
	// what the kernel answered.
	Err error
	// MinKernel is the first release of Linux that has the feature, "" if it
	// depends on how the kernel or the system is set up, not on its age.
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
	Release string // as uname says, for instance "6.1.0-56-amd64"
	Arch    string // Go's name, for instance "amd64"

	// What the caller may do.
	Root        Feature // the user is root
	CapBPF      Feature // may load programs: CAP_BPF or CAP_SYS_ADMIN
	CapNetAdmin Feature // may attach them to the network: CAP_NET_ADMIN
	CapPerfmon  Feature // may attach them to functions: CAP_PERFMON or CAP_SYS_ADMIN
	CapSysAdmin Feature // may mount, and do what BPF iterators need: CAP_SYS_ADMIN

	// Where things are.
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

	PacketSockets    []string // the programs that have some, as "name (pid)"
	PacketSocketsErr error    // why that is not known

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

	// Who uses a socket.
	RawTracepoints     Feature // programs at tracepoints with typed arguments (tp_btf)
	SendTracepoint     Feature // tracepoint tcp_sendmsg_locked
	ForkTracepoint     Feature // tracepoint sched_process_fork
	ExitTracepoint     Feature // tracepoint sched_process_exit
	Fentry             Feature // programs at the entry of functions
	SendFentry         Feature // ... of tcp_sendmsg_locked
	SendpagesFentry    Feature // ... of do_tcp_sendpages, which sendfile and splice used before 6.5
	ConnectFentry      Feature // ... of tcp_connect
	ListenFentry       Feature // ... of inet_csk_listen_start
	TaskFromPID        Feature // a program can look a process up by its number
	IterTask           Feature // iterator over processes
	IterTaskFile       Feature // iterator over open files
	IterTaskFileFilter Feature // ... of one process only
	IterTCP            Feature // iterator over TCP sockets
	IterSKStorage      Feature // iterator over the sockets that hold a value of ours

	// Maps.
	SKStorage       Feature // values kept with sockets
	TaskStorage     Feature // values kept with processes
	TaskStorageSock Feature // ... and read by a cgroup/sock_create program
	CgroupStorage   Feature // values kept with cgroups
	LRUHash         Feature
	RingBuf         Feature
	LPMTrie         Feature
	SpinLock        Feature

	// Shaping, for what pacing cannot hold.
	TrafficClass Feature // program type sched_cls
	TCX          Feature // tcx links
	Veth         Feature // device type veth
	HTB          Feature // queueing discipline htb
	Clsact       Feature // queueing discipline clsact
	SockLookup   Feature // a sched_cls program can find the socket of a packet

	// Shares of the processors.
	CPUController Feature // the CPU controller is in a mounted cgroup hierarchy
	CPUQuota      Feature // groups can have a ceiling
	CPUBurst      Feature // and make up for what of it they did not use
	Deadline      Feature // scheduling policy SCHED_DEADLINE

	CPUPath   string // where CPUController is mounted
	CPULayout string // CgroupLayoutV1 or CgroupLayoutV2, of that
}

// Ways in which cgroups can be mounted.
const (
	CgroupLayoutV2     = "v2"     // v2 alone
	CgroupLayoutHybrid = "hybrid" // v1 controllers beside v2
	CgroupLayoutV1     = "v1"     // v1 alone
	CgroupLayoutNone   = "none"   // nothing mounted
)

// Named is a feature with its name and what it is, for tables.
type Named struct {
	Name  string // the field's name
	Title string // for people
	Feature
}

// Probe tries everything. It needs well under a second, as root; without
// privileges most attempts end in ErrUnknown. The context ends it between two
// attempts: what was not tried by then is ErrUnknown.
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

// Unknown says that nobody knows whether the feature is there.
func (f Feature) Unknown() bool { return errors.Is(f.Err, ErrUnknown) }
