package doctor

import (
	"fmt"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/kernelfeatures"
)

// privileges checks the privileges of the caller.
func privileges(f *kernelfeatures.Features) api.Check {
	const name = "privileges"
	var lacking []string
	for _, p := range []part{
		{"CAP_BPF", f.CapBPF},
		{"CAP_NET_ADMIN", f.CapNetAdmin},
		{"CAP_PERFMON", f.CapPerfmon},
		{"CAP_SYS_ADMIN", f.CapSysAdmin},
	} {
		if !p.feature.Have {
			lacking = append(lacking, p.name)
		}
	}
	switch {
	case len(lacking) == 0 && f.Root.Have:
		return api.Check{Name: name, State: OK, Found: "root, with all capabilities that netnice needs"}
	case len(lacking) == 0:
		return api.Check{Name: name, State: OK, Found: "not root, but with all capabilities that netnice needs"}
	case f.Root.Have:
		return api.Check{
			Name: name, State: Missing,
			Found:  "root, but without " + strings.Join(lacking, ", ") + ": in a container?",
			Means:  "netnice cannot load its programs here.",
			Remedy: "run netnice on the machine itself, or give the container what it needs: docker run --privileged --pid=host --cgroupns=host ...",
		}
	}
	return api.Check{
		Name: name, State: Degraded,
		Found:  "not root",
		Means:  "A running daemon serves you all the same, for your own processes. This report is incomplete: most of it can only be found out as root.",
		Remedy: "sudo netnice doctor",
	}
}

// kernelTypes checks whether the kernel describes its types (BTF).
func kernelTypes(f *kernelfeatures.Features) api.Check {
	return needs("kernel types", "BTF at /sys/kernel/btf/vmlinux",
		"netnice's programs are fitted to the kernel by its type information (BTF) and do not load without it.",
		f, part{"BTF", f.BTF})
}

// programs checks whether BPF programs load, and run at full speed.
func programs(f *kernelfeatures.Features) api.Check {
	const name = "kernel programs"
	if f.Lockdown == "confidentiality" || !f.ReadKernel.Have && !f.ReadKernel.Unknown() {
		return api.Check{
			Name: name, State: Missing,
			Found:  "BPF programs may not read kernel memory (lockdown: " + orUnknown(f.Lockdown) + ")",
			Means:  "netnice cannot tell whose a socket is.",
			Remedy: "take lockdown=confidentiality off the kernel's command line (lockdown=integrity is fine) and reboot",
		}
	}
	found := "the bpf system call works, programs are compiled"
	if f.JIT.Unknown() {
		found = "the bpf system call works"
	}
	check := needs(name, found, "netnice cannot load its programs.", f, part{"the bpf system call", f.BPF})
	if check.State != OK || f.JIT.Have || f.JIT.Unknown() {
		return check
	}
	return api.Check{
		Name: name, State: Degraded,
		Found:  "the bpf system call works, but programs are interpreted",
		Means:  "Limits hold, at several times the cost in CPU time.",
		Remedy: "sysctl -w net.core.bpf_jit_enable=1",
	}
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// bpfFolder is where netnice keeps its programs.
const bpfFolder = "/sys/fs/bpf"

// bpfFileSystem checks whether limits can outlive the daemon.
func bpfFileSystem(f *kernelfeatures.Features) api.Check {
	const (
		name   = "bpf file system"
		remedy = "mount -t bpf bpf " + bpfFolder
	)
	switch {
	case f.BPFFS.Have && f.BPFFSPath == bpfFolder:
		return api.Check{Name: name, State: OK, Found: "mounted at " + bpfFolder}
	case f.BPFFS.Unknown():
		return unknown(name)
	}
	check := api.Check{Name: name, State: Degraded, Found: "not mounted", Remedy: remedy}
	if f.BPFFS.Have {
		check.Found = "mounted at " + f.BPFFSPath + ", not at " + bpfFolder
	}
	check.Means = "netnice keeps its programs there, so that limits outlive its daemon. It mounts " + bpfFolder + " itself when it starts as root."
	if f.Root.Have && !f.CapSysAdmin.Have {
		check.State = Missing
		check.Means = "netnice keeps its programs there and may not mount it here."
		check.Remedy = remedy + "  (on the machine itself, then bind it into the container)"
	}
	return check
}

// cgroups checks whether cgroup v2 is mounted, to which the programs are attached.
func cgroups(f *kernelfeatures.Features) api.Check {
	const name = "cgroup v2"
	switch {
	case f.CgroupV2.Have && f.CgroupLayout == kernelfeatures.CgroupLayoutHybrid:
		return api.Check{Name: name, State: OK, Found: "mounted at " + f.CgroupPath + ", beside v1"}
	case f.CgroupV2.Have:
		return api.Check{Name: name, State: OK, Found: "mounted at " + f.CgroupPath}
	case f.CgroupV2.Unknown():
		return unknown(name)
	}
	check := api.Check{
		Name: name, State: Missing,
		Found:  "no cgroup mounted",
		Means:  "netnice attaches its programs to the root of cgroup v2 and has no other place.",
		Remedy: "mount -t cgroup2 none /sys/fs/cgroup",
	}
	if f.CgroupLayout == kernelfeatures.CgroupLayoutV1 {
		check.Found = "only v1 is mounted"
		check.Remedy = "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified\n" +
			"or for good: add systemd.unified_cgroup_hierarchy=1 to the kernel's command line and reboot"
	}
	return check
}

// wholeMachine checks whether this process sees the machine or a container.
func wholeMachine(f *kernelfeatures.Features) api.Check {
	const (
		name   = "whole machine"
		remedy = "run netnice on the machine itself, or in a container with --privileged --pid=host --cgroupns=host"
	)
	switch {
	case !f.HostPIDs.Have && !f.HostPIDs.Unknown():
		return api.Check{
			Name: name, State: Degraded,
			Found:  "this is a container: process numbers here are not the machine's",
			Means:  "A limit on a process number would miss, or hit another process. Limits on users and cgroups are not affected.",
			Remedy: remedy,
		}
	case f.CgroupV2.Have && !f.CgroupRoot.Have && !f.CgroupRoot.Unknown():
		return api.Check{
			Name: name, State: Degraded,
			Found:  "this is a container: " + f.CgroupPath + " is not the machine's root cgroup",
			Means:  "Limits reach only the processes of this container, --host included.",
			Remedy: remedy,
		}
	}
	return api.Check{Name: name, State: OK, Found: "process numbers and the root cgroup are the machine's"}
}

// systemd checks whether systemd runs, which limits on units and scopes need.
func systemd(f *kernelfeatures.Features) api.Check {
	const name = "systemd"
	if f.Systemd.Have {
		return api.Check{Name: name, State: OK, Found: "running"}
	}
	return api.Check{
		Name: name, State: Degraded,
		Found: "not running",
		Means: "--unit has nothing to find, and run --scope makes a plain cgroup instead of a systemd scope. Everything else works.",
	}
}

// packetSockets names the processes with packet sockets, where netnice does not see every packet of these.
func packetSockets(f *kernelfeatures.Features) api.Check {
	const name, most = "packet sockets", 5
	if f.PacketSocketsErr != nil {
		return unknown(name)
	}
	if len(f.PacketSockets) == 0 {
		return api.Check{Name: name, State: OK, Found: "no program has any"}
	}
	found := strings.Join(f.PacketSockets[:min(most, len(f.PacketSockets))], ", ")
	if more := len(f.PacketSockets) - most; more > 0 {
		found += fmt.Sprintf(" and %d more", more)
	}
	return api.Check{
		Name: name, State: OK, Found: found,
		Means:  "What is sent by them is limited only where datagrams of a limited program wait, and not with PACKET_QDISC_BYPASS.",
		Remedy: "take CAP_NET_RAW from who should be held: CapabilityBoundingSet=~CAP_NET_RAW in a unit, --cap-drop NET_RAW for a container",
	}
}
