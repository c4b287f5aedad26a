package systemd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	enableVar  = "NETNICE_TEST_SYSTEMD"
	packageVar = "NETNICE_DEB" // the package's file
	bootTime   = 10 * time.Minute
)

// packages of the guest, besides Debian's smallest system.
var packages = []string{
	"systemd-sysv", "dbus", "udev", "kmod", "iproute2", "initramfs-tools", "linux-image-amd64",
	"python3-minimal", "cron", "openssh-server", "openssh-client", "bpftool",
}

// TestPackage installs the package on a Debian with systemd, has the units do their work, reboots, and removes the
// package.
func TestPackage(t *testing.T) {
	if os.Getenv(enableVar) == "" {
		t.Skipf("boots a whole Debian under emulation: make test-systemd")
	}
	deb := os.Getenv(packageVar)
	require.FileExists(t, deb, packageVar+" names the package: make test-systemd makes it")
	base, err := guest(t.Context())
	require.NoError(t, err)
	disk := filepath.Join(t.TempDir(), "disk")
	run(t, "cp", "--sparse=always", filepath.Join(base, "disk"), disk)
	files := map[string]string{"/root/netnice.deb": deb}
	for _, name := range []string{"common.sh", "begin.sh", "first.sh", "second.sh", "flow.py", "judge.py"} {
		files["/root/"+name] = name
	}
	files["/home/bob/flow.py"] = "flow.py"
	files["/etc/systemd/system/test.service"] = "test.service"
	var commands strings.Builder
	for to, from := range files {
		fmt.Fprintf(&commands, "write %s %s\n", from, to)
	}
	commands.WriteString("symlink /etc/systemd/system/multi-user.target.wants/test.service /etc/systemd/system/test.service\n")
	debugfs := exec.CommandContext(t.Context(), "debugfs", "-w", "-f", "-", disk)
	debugfs.Stdin = strings.NewReader(commands.String())
	out, err := debugfs.CombinedOutput()
	require.NoError(t, err, string(out))

	for i, script := range []string{"first.sh", "second.sh"} {
		t.Run([]string{"installed, upgraded, used", "rebooted, removed"}[i], func(t *testing.T) {
			judge(t, script, boot(t, base, disk))
		})
	}
}

// boot runs the guest until it powers off or reboots, and returns the output of the script.
func boot(t *testing.T, base, disk string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	console := filepath.Join(t.TempDir(), "console")
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot",
		"-display", "none", "-accel", "tcg", "-cpu", "max", "-m", "1536M", "-smp", "2",
		"-kernel", filepath.Join(base, "vmlinuz"), "-initrd", filepath.Join(base, "initrd"),
		"-append", "root=/dev/vda console=ttyS0 panic=-1 random.trust_cpu=on",
		"-drive", "file="+disk+",if=virtio,format=raw",
		"-serial", "file:"+console, "-serial", "stdio")
	var out bytes.Buffer
	qemu.Stdout, qemu.Stderr = &out, &out
	if err := qemu.Run(); err != nil {
		said, _ := os.ReadFile(console)
		t.Fatalf("qemu: %v\n%s\n%s", err, out.Bytes(), said[max(0, len(said)-4000):])
	}
	return out.Bytes()
}

// judge compares the output of a script with the checks in the script.
func judge(t *testing.T, script string, out []byte) {
	t.Helper()
	t.Logf("%s", out)
	passed := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		switch what, rest, _ := strings.Cut(strings.TrimSpace(line), " "); what {
		case "ok":
			passed[rest] = true
		case "FAIL":
			t.Error(rest)
		}
	}
	text, err := os.Open(script)
	require.NoError(t, err)
	defer text.Close()
	lines, checks := bufio.NewScanner(text), 0
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "check" {
			checks++
			require.True(t, passed[f[1]], "%s did not pass, or was not come to", f[1])
		}
	}
	require.NoError(t, lines.Err())
	require.Greater(t, checks, 5)
}

// guest returns the folder of an installed Debian in the user's cache, or installs one: a disk, its kernel and the
// kernel's initramfs.
func guest(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "netnice-vm", "debian-12")
	if _, err := os.Stat(filepath.Join(dir, "disk")); err == nil {
		return dir, nil
	}
	temp, err := os.MkdirTemp("", "netnice-debian-")
	if err != nil {
		return "", fmt.Errorf("install a guest: %w", err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a left-over in the temporary folder harms nobody
	root, made := filepath.Join(temp, "root"), filepath.Join(temp, "made")
	if err := os.MkdirAll(made, 0o755); err != nil {
		return "", fmt.Errorf("install a guest: %w", err)
	}
	steps := [][]string{
		{"debootstrap", "--variant=minbase", "--include=" + strings.Join(packages, ","), "bookworm", root},
		{"chroot", root, "useradd", "-m", "bob"},
		{"sh", "-c", "echo '/dev/vda / ext4 defaults 0 1' >" + root + "/etc/fstab"},
		{"sh", "-c", "cp " + root + "/boot/vmlinuz-* " + made + "/vmlinuz && cp " + root + "/boot/initrd.img-* " + made + "/initrd"},
		{"sh", "-c", "rm -rf " + root + "/var/cache/apt " + root + "/var/lib/apt/lists"},
		{"truncate", "-s", "1500M", filepath.Join(made, "disk")},
		{"mke2fs", "-q", "-t", "ext4", "-d", root, filepath.Join(made, "disk")},
		{"mkdir", "-p", filepath.Dir(dir)},
		{"cp", "-r", "--sparse=always", made, dir},
	}
	for _, step := range steps {
		if out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput(); err != nil {
			return "", errors.Join(fmt.Errorf("install a guest: %s: %w\n%s", step[0], err, out), os.RemoveAll(dir))
		}
	}
	return dir, nil
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}
