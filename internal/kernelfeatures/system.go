package kernelfeatures

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hostPIDNamespace is the inode number of the machine's own namespace of
// process numbers (PROC_PID_INIT_INO in the kernel).
const hostPIDNamespace = "pid:[4026531836]"

// probeSystem fills in the features that files and the caller's own state show.
func probeSystem(f *Features) {
	probeCaller(f, os.Geteuid(), readCapabilities)
	probeFiles(f, os.DirFS("/"))
	f.HostPIDs.set(inHostPIDNamespace())
}

// capabilities are those of the caller. Only the effective ones count.
type capabilities [2]unix.CapUserData

func readCapabilities() (capabilities, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var c capabilities
	if err := unix.Capget(&header, &c[0]); err != nil {
		return c, fmt.Errorf("%w: read own capabilities: %w", ErrUnknown, err)
	}
	return c, nil
}

func (c capabilities) have(bit uint) bool {
	return c[bit/32].Effective&(1<<(bit%32)) != 0
}

func probeCaller(f *Features, uid int, read func() (capabilities, error)) {
	if uid == 0 {
		f.Root.set(nil)
	} else {
		f.Root.set(fmt.Errorf("%w: user id %d", ErrAbsent, uid))
	}
	own, err := read()
	for _, c := range []struct {
		feature *Feature
		name    string
		any     []uint
	}{
		{&f.CapBPF, "CAP_BPF", []uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN}},
		{&f.CapNetAdmin, "CAP_NET_ADMIN", []uint{unix.CAP_NET_ADMIN}},
		{&f.CapPerfmon, "CAP_PERFMON", []uint{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}},
		{&f.CapSysAdmin, "CAP_SYS_ADMIN", []uint{unix.CAP_SYS_ADMIN}},
	} {
		if err != nil {
			c.feature.set(err)
			continue
		}
		c.feature.set(fmt.Errorf("%w: %s", ErrAbsent, c.name))
		for _, bit := range c.any {
			if own.have(bit) {
				c.feature.set(nil)
			}
		}
	}
}

// probeFiles reads mounts and settings from the file system root.
func probeFiles(f *Features, root fs.FS) {
	mounts, err := readMounts(root)
	f.CgroupV2.MinKernel = "4.5"
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
		f.BPFFS.set(err)
		f.CgroupV2.set(err)
		f.CgroupRoot.set(err)
		f.CPUController.set(err)
	} else {
		probeMounts(f, root, mounts)
	}
	if _, err := fs.Stat(root, "run/systemd/system"); err != nil {
		f.Systemd.set(fmt.Errorf("%w: %w", ErrAbsent, err))
	} else {
		f.Systemd.set(nil)
	}
	f.Lockdown = chosen(readLine(root, "sys/kernel/security/lockdown"))
	f.UnprivilegedBPF = readLine(root, "proc/sys/kernel/unprivileged_bpf_disabled")
	f.Congestion = strings.Fields(readLine(root, "proc/sys/net/ipv4/tcp_available_congestion_control"))
}

// mount is one line of /proc/self/mountinfo.
type mount struct {
	kind string // type of the file system
	at   string // mount point
	root string // the folder of the file system that is mounted
	with string // options of the file system; cgroup v1 lists its controllers there
}

func probeMounts(f *Features, root fs.FS, mounts []mount) {
	f.BPFFS.set(fmt.Errorf("%w: no bpf file system mounted", ErrAbsent))
	f.CgroupV2.set(fmt.Errorf("%w: no cgroup2 file system mounted", ErrAbsent))
	f.CgroupRoot.set(fmt.Errorf("%w: no cgroup2 file system mounted", ErrUnknown))
	probeProcessors(f, root, mounts)
	v1 := false
	for _, m := range mounts {
		switch {
		case m.kind == "cgroup":
			v1 = true
		case m.kind == "bpf" && (!f.BPFFS.Have || m.at == "/sys/fs/bpf"):
			f.BPFFS.set(nil)
			f.BPFFSPath = m.at
		case m.kind == "cgroup2" && !f.CgroupV2.Have:
			f.CgroupV2.set(nil)
			f.CgroupPath = m.at
			f.CgroupRoot.set(showsRoot(root, m))
		}
	}
	switch {
	case f.CgroupV2.Have && v1:
		f.CgroupLayout = CgroupLayoutHybrid
	case f.CgroupV2.Have:
		f.CgroupLayout = CgroupLayoutV2
	case v1:
		f.CgroupLayout = CgroupLayoutV1
	default:
		f.CgroupLayout = CgroupLayoutNone
	}
}

// probeProcessors finds the CPU controller. It looks in version 1 first; only one version has the controller.
func probeProcessors(f *Features, root fs.FS, mounts []mount) {
	f.CPUController.set(fmt.Errorf("%w: no mounted cgroup hierarchy has the CPU controller", ErrAbsent))
	for _, m := range mounts {
		if m.kind == "cgroup" && slices.Contains(strings.Split(m.with, ","), "cpu") {
			f.CPUController.set(nil)
			f.CPULayout, f.CPUPath = CgroupLayoutV1, m.at
			return
		}
	}
	for _, m := range mounts {
		if m.kind == "cgroup2" && slices.Contains(strings.Fields(readLine(root, path.Join(strings.TrimPrefix(m.at, "/"), "cgroup.controllers"))), "cpu") {
			f.CPUController.set(nil)
			f.CPULayout, f.CPUPath = CgroupLayoutV2, m.at
			return
		}
	}
}

// haveDeadline returns nil if the kernel has SCHED_DEADLINE and allows time for it. It does not try the policy, because
// that could cost a thread its time.
func haveDeadline() error {
	if _, _, errno := unix.Syscall(unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SCHED_DEADLINE, 0, 0); errno != 0 {
		return fmt.Errorf("%w: %w", ErrAbsent, errno)
	}
	if text := readLine(os.DirFS("/"), "proc/sys/kernel/sched_rt_runtime_us"); text == "0" {
		return fmt.Errorf("%w: kernel.sched_rt_runtime_us is 0", ErrAbsent)
	}
	return nil
}

// showsRoot returns nil if a cgroup v2 mount shows the machine's root cgroup. Only that cgroup has no file cgroup.type.
func showsRoot(root fs.FS, m mount) error {
	_, err := fs.Stat(root, path.Join(strings.TrimPrefix(m.at, "/"), "cgroup.type"))
	if m.root != "/" || err == nil {
		return fmt.Errorf("%w: %s shows a container's cgroup", ErrAbsent, m.at)
	}
	return nil
}

// readMounts reads the mounts that this process sees.
func readMounts(root fs.FS) ([]mount, error) {
	file, err := root.Open("proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	defer file.Close() //nolint:errcheck // opened for reading
	var mounts []mount
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// 36 35 98:0 /root /mount/point options [more ...] - type source superoptions
		front, back, found := strings.Cut(lines.Text(), " - ")
		// Users mount by FUSE. The names may contain any other blank of Unicode, and the source may be empty.
		first, last := strings.Split(front, " "), strings.Split(back, " ")
		if !found || len(first) < 5 {
			continue
		}
		m := mount{kind: last[0], root: unescape(first[3]), at: unescape(first[4])}
		if len(last) > 2 {
			m.with = last[2]
		}
		mounts = append(mounts, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return mounts, nil
}

// unescape undoes the kernel's way of writing blanks in mount points.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(text)
}

// readLine returns a small file's text without its newline, "" if it cannot be read.
func readLine(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// chosen returns the word in brackets of a list such as "[none] integrity".
func chosen(list string) string {
	_, rest, found := strings.Cut(list, "[")
	word, _, closed := strings.Cut(rest, "]")
	if !found || !closed {
		return ""
	}
	return word
}

func sysctlIsOn(name string) error {
	text, err := os.ReadFile(path.Join("/proc/sys", name))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if strings.TrimSpace(string(text)) == "0" {
		return fmt.Errorf("%w: %s is 0", ErrAbsent, strings.ReplaceAll(name, "/", "."))
	}
	return nil
}

func inHostPIDNamespace() error {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if own != hostPIDNamespace {
		return fmt.Errorf("%w: this process is in a container (%s)", ErrAbsent, own)
	}
	return nil
}
