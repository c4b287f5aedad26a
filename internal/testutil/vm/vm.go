// Package vm runs a static program on another kernel than this machine's. It boots one of Debian's stock kernels
// under qemu's emulation, with a file system made of the program and its files. It returns the program's output and
// exit status. It owns the kernel's package (downloaded, never installed), the initramfs and the qemu process. It
// changes nothing on the machine but a cache folder.
//
//	res, err := vm.Run(ctx, vm.Config{Kernel: "6.1", Program: "./bin/netnice", Args: []string{"doctor"}})
//
// It needs Debian's packages qemu-system-x86, dpkg, apt and xz-utils.
package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/testutil/vm/wire"
)

// Config says what to run and on what. Only Program is required.
type Config struct {
	Program string   // path of a static binary on the host
	Args    []string // its arguments
	Name    string   // argv[0] and name in /bin; the base of Program by default
	Env     []string // "NAME=value", added to the guest's own variables
	Dir     string   // working directory in the guest, "/root" by default

	// Files are host files and folders to put into the guest, by guest path.
	Files map[string]string
	// Programs are further host programs to put into /bin with the shared
	// libraries that they need: paths or names in $PATH.
	Programs []string
	// Libraries are shared libraries, or folders of them, among Files, which need further ones that the guest then has, too.
	Libraries []string
	// Fetch are guest files to bring back into Result.Files.
	Fetch []string

	// Kernel is a series of Debian's ("6.1", "6.12"), a package file (.deb), or
	// the path, with a slash, of a bootable image that needs no modules;
	// $NETNICE_VM_KERNEL, else DefaultKernel, by default.
	Kernel string
	// Modules are kernel modules to load besides DefaultModules.
	Modules []string
	// Cgroup is how the guest mounts cgroups: wire.CgroupV2 (the default),
	// CgroupHybrid, CgroupV1 or CgroupNone.
	Cgroup string
	// NoBPFFS leaves /sys/fs/bpf unmounted.
	NoBPFFS bool
	// Append is added to the kernel's command line.
	Append string

	MemoryMiB int           // 1024 by default
	CPUs      int           // 1 by default
	Accel     string        // qemu's accelerator; $NETNICE_VM_ACCEL, else "tcg", by default
	Timeout   time.Duration // for the program, in whole seconds; 10 minutes by default
	Cache     string        // folder for kernels; netnice-vm in the user's cache by default

	Stdout, Stderr io.Writer // copies of the program's output, live; nil for none
	Console        io.Writer // a copy of the kernel's console, at the end; nil for none
}

// DefaultKernel is the series that runs if nothing else is said: Debian 12's.
const DefaultKernel = "6.1"

// bootAllowance is how long a guest may take to boot and to power off.
const bootAllowance = 2 * time.Minute

// DefaultModules returns the kernel modules that every guest loads, where its
// kernel has them as modules.
func DefaultModules() []string {
	return []string{
		"veth", "dummy", "tun",
		"sch_htb", "sch_fq", "sch_tbf", "sch_netem", "sch_ingress", "cls_bpf",
		"tcp_bbr", "inet_diag", "tcp_diag", "nfnetlink", "xfrm_user",
	}
}

// Result holds the results of a run.
type Result struct {
	Kernel   string // package
	ExitCode int    // exit status of the program; 128 + signal if a signal ended it
	Stdout   []byte
	Stderr   []byte
	Files    map[string][]byte // the files of Config.Fetch that the guest had
	Console  string            // the kernel's output
	Notes    []string          // failures in the guest, for instance of a module to load
	Boot     time.Duration     // time from qemu's start to the program's start
	Ran      time.Duration     // duration of the program, by the guest's clock
}

// ErrGuest says that the guest ended without the program's exit status: it did not boot, it panicked, or its time
// was up. The error's text holds the end of the kernel's console.
var ErrGuest = errors.New("guest failed")

func (c Config) withDefaults() (Config, error) {
	if c.Program == "" {
		return c, errors.New("no program to run")
	}
	if c.Name == "" {
		c.Name = filepath.Base(c.Program)
	}
	c.Kernel = first(c.Kernel, os.Getenv("NETNICE_VM_KERNEL"), DefaultKernel)
	c.Accel = first(c.Accel, os.Getenv("NETNICE_VM_ACCEL"), "tcg")
	c.Cgroup = first(c.Cgroup, wire.CgroupV2)
	c.Dir = first(c.Dir, "/root")
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 1024
	}
	if c.CPUs == 0 {
		c.CPUs = 1
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.Cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			base = os.TempDir()
		}
		c.Cache = filepath.Join(base, "netnice-vm")
	}
	return c, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// Run boots a guest, runs the program in it and returns the result. An exit status other than 0 is no error. When
// its time is up, the program gets SIGQUIT (a Go program prints its goroutines) and then SIGKILL, and the error says
// so.
func Run(ctx context.Context, config Config) (*Result, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("run in guest: %w", err)
	}
	kernel, err := FetchKernel(ctx, c.Kernel, c.Cache)
	if err != nil {
		return nil, fmt.Errorf("run in guest: %w", err)
	}
	temp, err := os.MkdirTemp("", "netnice-vm-")
	if err != nil {
		return nil, fmt.Errorf("run in guest: %w", err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a left-over in the temporary folder harms nobody

	image := filepath.Join(temp, "initramfs")
	notes, err := buildImage(ctx, c, kernel, temp, image)
	if err != nil {
		return nil, fmt.Errorf("run in guest: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+bootAllowance)
	defer cancel()
	res := &Result{Kernel: kernel.Package, Files: map[string][]byte{}, Notes: notes}
	if err := c.boot(ctx, kernel.Image, image, filepath.Join(temp, "console"), res); err != nil {
		return res, fmt.Errorf("run in guest: %w", err)
	}
	return res, nil
}

// boot runs qemu and fills res.
func (c Config) boot(ctx context.Context, kernel, image, console string, res *Result) error {
	line := "console=ttyS0 quiet panic=-1 rdinit=/init random.trust_cpu=on"
	if c.Append != "" {
		line += " " + c.Append
	}
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", c.Accel, "-cpu", "max",
		"-m", strconv.Itoa(c.MemoryMiB)+"M", "-smp", strconv.Itoa(c.CPUs),
		"-kernel", kernel, "-initrd", image, "-append", line,
		"-serial", "file:"+console, // ttyS0
		"-serial", "stdio") // ttyS1: frames
	var complaint bytes.Buffer
	qemu.Stderr = &complaint
	stream, err := qemu.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start qemu: %w", err)
	}
	start := time.Now()
	if err := qemu.Start(); err != nil {
		return fmt.Errorf("start qemu: %w (Debian's package is qemu-system-x86)", err)
	}
	ended, readErr := c.collect(stream, res, start)
	if ended { // the program has ended; no need to wait for the guest to power off
		_ = qemu.Process.Kill()
	}
	waitErr := qemu.Wait()
	text, _ := os.ReadFile(console)
	res.Console = string(text)
	if c.Console != nil {
		_, _ = c.Console.Write(text)
	}
	if ended {
		return readErr
	}
	why := errors.Join(context.Cause(ctx), readErr, waitErr)
	return fmt.Errorf("%w after %s: %w\n%s%s", ErrGuest, time.Since(start).Round(time.Second), why,
		complaint.String(), tail(res.Console, 40))
}

// collect reads frames until the program's end, which it reports, or until the stream's end.
func (c Config) collect(stream io.Reader, res *Result, start time.Time) (ended bool, err error) {
	var stdout, stderr bytes.Buffer
	defer func() { res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes() }()
	for {
		kind, payload, err := wire.Read(stream)
		if err != nil {
			return false, fmt.Errorf("read from guest: %w", err)
		}
		switch kind {
		case wire.Ready:
			res.Boot = time.Since(start)
		case wire.Stdout:
			tee(&stdout, c.Stdout, payload)
		case wire.Stderr:
			tee(&stderr, c.Stderr, payload)
		case wire.Note:
			res.Notes = append(res.Notes, string(payload))
		case wire.File:
			var f wire.FileFrame
			if err := json.Unmarshal(payload, &f); err != nil {
				return false, fmt.Errorf("read file from guest: %w", err)
			}
			if f.Err != "" {
				res.Notes = append(res.Notes, f.Path+": "+f.Err)
				continue
			}
			res.Files[f.Path] = f.Data
		case wire.Exit:
			var s wire.Status
			if err := json.Unmarshal(payload, &s); err != nil {
				return false, fmt.Errorf("read status from guest: %w", err)
			}
			res.ExitCode, res.Ran = s.Code, time.Duration(s.Millis)*time.Millisecond
			if s.Err != "" {
				return true, fmt.Errorf("%w: %s: %s", ErrGuest, c.Name, s.Err)
			}
			return true, nil
		}
	}
}

func tee(buffer *bytes.Buffer, live io.Writer, data []byte) {
	buffer.Write(data)
	if live != nil {
		_, _ = live.Write(data)
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
