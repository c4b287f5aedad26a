package kernelfeatures

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	bpffeatures "github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// attempt finds out about one feature.
type attempt struct {
	feature *Feature
	since   string // for MinKernel
	try     func() error
}

// prober holds what several attempts need.
type prober struct {
	allowed error     // why BPF cannot be tried at all; nil if it can
	types   *btf.Spec // the kernel's types; nil if it has none
	rawBTF  []byte    // the kernel's types, in the kernel's own encoding
	typeErr error
	traffic *traffic
}

func newProber(f *Features) *prober {
	p := &prober{traffic: newTraffic(f.Release)}
	if !f.CapBPF.Have || !f.CapNetAdmin.Have || !f.CapPerfmon.Have {
		p.allowed = fmt.Errorf("%w: needs root", ErrUnknown)
	}
	p.rawBTF, p.typeErr = os.ReadFile("/sys/kernel/btf/vmlinux")
	if p.typeErr == nil {
		p.types, p.typeErr = btf.LoadKernelSpec()
	}
	if p.typeErr != nil {
		p.typeErr = fmt.Errorf("%w: %w", ErrAbsent, p.typeErr)
	}
	return p
}

// attempts lists the attempts in order. A later attempt may use the outcome of an earlier one, which f then holds.
func (p *prober) attempts(f *Features) []attempt {
	sockopt, sockops, cls := ebpf.CGroupSockopt, ebpf.SockOps, ebpf.SchedCLS
	return []attempt{
		{&f.BTF, "4.18", func() error { return p.typeErr }},
		{&f.BPF, "", p.mapType(ebpf.Array)},
		{&f.JIT, "", p.compiled},
		// The helper came with the change of accounting. libbpf looks for the same helper.
		{&f.MemcgCharge, "5.11", p.helper(ebpf.SocketFilter, asm.FnKtimeGetCoarseNs)},
		{&f.ReadKernel, "", p.helper(ebpf.Kprobe, asm.FnProbeReadKernel)},

		{&f.SockOps, "4.13", p.programType(sockops)},
		{&f.HeaderOptions, "5.10", p.helper(sockops, asm.FnReserveHdrOpt)},
		{&f.TCPSock, "5.9", p.helper(sockops, asm.FnSkcToTcpSock)},
		{&f.CgroupSKB, "4.10", p.programType(ebpf.CGroupSKB)},
		{&f.CgroupSock, "4.10", p.programType(ebpf.CGroupSock)},
		{&f.CgroupSockopt, "5.3", p.programType(sockopt)},
		{&f.SetRetval, "5.18", p.helper(sockopt, asm.FnSetRetval)},
		{&f.CBFlags, "6.12", p.enumerator("TCP_BPF_SOCK_OPS_CB_FLAGS")},
		{&f.FQ, "", p.traffic.qdisc("fq")},
		{&f.BBR, "", func() error { return p.traffic.congestion("bbr", f.Congestion) }},

		{&f.RawTracepoints, "5.5", p.tracepoint("sched_process_fork")},
		{&f.SendTracepoint, "6.16", p.tracepoint("tcp_sendmsg_locked")},
		{&f.ForkTracepoint, "5.5", p.tracepoint("sched_process_fork")},
		{&f.ExitTracepoint, "5.5", p.tracepoint("sched_process_exit")},
		{&f.Fentry, fentrySince(f.Arch), p.fentryAttached},
		{&f.SendFentry, fentrySince(f.Arch), p.fentry("tcp_sendmsg_locked", &f.Fentry)},
		{&f.SendpagesFentry, fentrySince(f.Arch), p.fentry("do_tcp_sendpages", &f.Fentry)},
		{&f.ConnectFentry, fentrySince(f.Arch), p.fentry("tcp_connect", &f.Fentry)},
		{&f.ListenFentry, fentrySince(f.Arch), p.fentry("inet_csk_listen_start", &f.Fentry)},
		{&f.TaskFromPID, "6.2", p.function("bpf_task_from_pid")},
		{&f.IterTask, "5.8", p.iterator("task")},
		{&f.IterTaskFile, "5.8", p.iterator("task_file")},
		{&f.IterTaskFileFilter, "6.1", p.member("bpf_iter_link_info", "task")},
		{&f.IterTCP, "5.9", p.iterator("tcp")},
		{&f.IterSKStorage, "5.9", p.iterator("bpf_sk_storage_map")},

		{&f.SKStorage, "5.2", p.mapType(ebpf.SkStorage)},
		{&f.TaskStorage, "5.11", p.mapType(ebpf.TaskStorage)},
		{&f.TaskStorageSock, "6.16", p.helper(ebpf.CGroupSock, asm.FnTaskStorageGet)},
		{&f.CgroupStorage, "6.2", p.mapType(ebpf.CgroupStorage)},
		{&f.LRUHash, "4.10", p.mapType(ebpf.LRUHash)},
		{&f.RingBuf, "5.8", p.mapType(ebpf.RingBuf)},
		{&f.LPMTrie, "4.11", p.mapType(ebpf.LPMTrie)},
		{&f.SpinLock, "5.1", p.helper(cls, asm.FnSpinLock)},

		{&f.TrafficClass, "4.1", p.programType(cls)},
		{&f.TCX, "6.6", p.tcx},
		{&f.Veth, "", p.traffic.device("veth")},
		{&f.HTB, "", p.traffic.qdisc("htb")},
		{&f.Clsact, "", p.traffic.module("sch_ingress", p.traffic.tryClsact)},
		{&f.SockLookup, "4.20", p.helper(cls, asm.FnSkLookupTcp)},

		{&f.CPUQuota, "", p.field("cfs_bandwidth", "quota")},
		{&f.CPUBurst, "5.14", p.field("cfs_bandwidth", "burst")},
		{&f.Deadline, "3.14", haveDeadline},
	}
}

func fentrySince(arch string) string {
	if arch == "arm64" {
		return "6.0"
	}
	return "5.5"
}

// outcome turns the answer of an attempt into a feature's error.
func outcome(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrAbsent), errors.Is(err, ErrUnknown):
		return err
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, btf.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return err
}

// bpf wraps an attempt that needs the bpf system call.
func (p *prober) bpf(try func() error) func() error {
	return func() error {
		if p.allowed != nil {
			return p.allowed
		}
		return outcome(try())
	}
}

// typed wraps an attempt that needs the kernel's types.
func (p *prober) typed(try func() error) func() error {
	return func() error {
		if p.typeErr != nil {
			return p.typeErr
		}
		return outcome(try())
	}
}

func (p *prober) mapType(t ebpf.MapType) func() error {
	return p.bpf(func() error { return bpffeatures.HaveMapType(t) })
}

func (p *prober) programType(t ebpf.ProgramType) func() error {
	return p.bpf(func() error { return bpffeatures.HaveProgramType(t) })
}

func (p *prober) helper(t ebpf.ProgramType, fn asm.BuiltinFunc) func() error {
	return p.bpf(func() error { return bpffeatures.HaveProgramHelper(t, fn) })
}

// compiled finds out whether the kernel compiles programs. Only the first network namespace has the setting. In others
// a loaded program shows it.
func (p *prober) compiled() error {
	err := sysctlIsOn("net/core/bpf_jit_enable")
	if !errors.Is(err, ErrUnknown) {
		return err
	}
	return p.bpf(func() error {
		program, err := loadIdle(ebpf.ProgramSpec{Type: ebpf.SocketFilter})
		if err != nil {
			return err
		}
		defer program.Close() //nolint:errcheck // the program did nothing
		info, err := program.Info()
		if err != nil {
			return err
		}
		_, err = info.JitedSize()
		return err
	})()
}

// enumerator looks for a constant in the kernel's types, where its name is a string of its own.
func (p *prober) enumerator(name string) func() error {
	return p.typed(func() error {
		if !bytes.Contains(p.rawBTF, []byte("\x00"+name+"\x00")) {
			return fmt.Errorf("constant %s: %w", name, btf.ErrNotFound)
		}
		return nil
	})
}

// function looks for a kernel function that programs may call.
func (p *prober) function(name string) func() error {
	return p.typed(func() error {
		var fn *btf.Func
		return p.types.TypeByName(name, &fn)
	})
}

// member looks for a member of a union.
func (p *prober) member(union, name string) func() error {
	return p.typed(func() error {
		var u *btf.Union
		if err := p.types.TypeByName(union, &u); err != nil {
			return err
		}
		for _, m := range u.Members {
			if m.Name == name {
				return nil
			}
		}
		return fmt.Errorf("member %s of %s: %w", name, union, btf.ErrNotFound)
	})
}

// field looks for a member of a struct.
func (p *prober) field(of, name string) func() error {
	return p.typed(func() error {
		var s *btf.Struct
		if err := p.types.TypeByName(of, &s); err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == name }) {
			return fmt.Errorf("member %s of %s: %w", name, of, btf.ErrNotFound)
		}
		return nil
	})
}

// loadIdle loads a program that does nothing, of the type and for the hook that spec names.
func loadIdle(spec ebpf.ProgramSpec) (*ebpf.Program, error) {
	spec.Name, spec.License = "netnice_probe", "GPL"
	spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	return ebpf.NewProgramWithOptions(&spec, ebpf.ProgramOptions{LogDisabled: true})
}

// load loads a tracing program that does nothing.
func (p *prober) load(at ebpf.AttachType, to string) (*ebpf.Program, error) {
	return loadIdle(ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: at, AttachTo: to})
}

func (p *prober) loads(at ebpf.AttachType, to string) func() error {
	return p.bpf(p.typed(func() error {
		program, err := p.load(at, to)
		if err != nil {
			return err
		}
		return program.Close()
	}))
}

func (p *prober) tracepoint(name string) func() error {
	return p.loads(ebpf.AttachTraceRawTp, name)
}

func (p *prober) iterator(name string) func() error {
	return p.loads(ebpf.AttachTraceIter, name)
}

// fentry loads a program at a function's entry. If attaching does not work at all, loading proves nothing.
func (p *prober) fentry(function string, attaching *Feature) func() error {
	loads := p.loads(ebpf.AttachTraceFEntry, function)
	return func() error {
		// It is useful in any case to know whether the kernel has the function.
		if err := p.function(function)(); err != nil {
			return err
		}
		if !attaching.Have {
			return attaching.Err
		}
		return loads()
	}
}

// fentryAttached attaches a program to a function that the kernel calls only to
// test itself.
func (p *prober) fentryAttached() error {
	return p.bpf(p.typed(func() error {
		program, err := p.load(ebpf.AttachTraceFEntry, "bpf_fentry_test1")
		if err != nil {
			return fmt.Errorf("load: %w", err)
		}
		defer program.Close() //nolint:errcheck // the program did nothing
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		return l.Close()
	}))()
}

// tcx asks for a link on a device that does not exist. A kernel with tcx reports the missing device. A kernel without
// tcx refuses the request itself.
func (p *prober) tcx() error {
	return p.bpf(func() error {
		program, err := loadIdle(ebpf.ProgramSpec{Type: ebpf.SchedCLS})
		if err != nil {
			return err
		}
		defer program.Close() //nolint:errcheck // the program did nothing
		l, err := link.AttachTCX(link.TCXOptions{
			Interface: math.MaxInt32,
			Program:   program,
			Attach:    ebpf.AttachTCXIngress,
		})
		switch {
		case err == nil:
			return l.Close()
		case errors.Is(err, unix.ENODEV):
			return nil
		case errors.Is(err, unix.EINVAL):
			return ebpf.ErrNotSupported
		}
		return err
	})()
}
