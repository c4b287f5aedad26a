package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil/vm/wire"
)

func mount(kind, to, options string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	if err := unix.Mount(kind, to, kind, 0, options); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	return nil
}

// mountBase mounts the file systems of every guest.
func mountBase() error {
	for _, m := range []struct{ kind, to, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", ""},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
	} {
		if err := mount(m.kind, m.to, m.options); err != nil {
			return err
		}
	}
	return nil
}

// prepare brings the guest into the state that the job asks for. A kernel may lack some of it: prepare reports that
// and goes on.
func prepare(job wire.Job, note func(string, ...any)) {
	try := func(err error) {
		if err != nil {
			note("%v", err)
		}
	}
	try(mount("debugfs", "/sys/kernel/debug", ""))
	try(mount("tracefs", "/sys/kernel/tracing", ""))
	try(mount("securityfs", "/sys/kernel/security", ""))
	if !job.NoBPFFS {
		try(mount("bpf", "/sys/fs/bpf", "mode=700"))
	}
	switch job.Cgroup {
	case wire.CgroupV2:
		try(mount("cgroup2", "/sys/fs/cgroup", ""))
		try(enableControllers("/sys/fs/cgroup"))
	case wire.CgroupHybrid:
		try(mountV1())
		try(mount("cgroup2", "/sys/fs/cgroup/unified", ""))
	case wire.CgroupV1:
		try(mountV1())
	}
	try(unix.Sethostname([]byte("netnice-vm")))
	try(loopbackUp())
	for _, dir := range []string{"/home/alice", "/home/bob"} {
		id := 1000
		if strings.HasSuffix(dir, "bob") {
			id = 1001
		}
		try(os.Chown(dir, id, id))
	}
}

func mountV1() error {
	if err := mount("tmpfs", "/sys/fs/cgroup", "mode=755"); err != nil {
		return err
	}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if err := mount("cgroup", filepath.Join("/sys/fs/cgroup", controller), controller); err != nil {
			return err
		}
	}
	return nil
}

func enableControllers(root string) error {
	text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("enable cgroup controllers: %w", err)
	}
	var want []string
	for _, c := range strings.Fields(string(text)) {
		want = append(want, "+"+c)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(strings.Join(want, " ")), 0); err != nil {
		return fmt.Errorf("enable cgroup controllers: %w", err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}
