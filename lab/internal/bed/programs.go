package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testbed"
)

// Start starts a program inside the namespace (nil = here). The program is killed at the end of the experiment, if
// it has not ended before.
func (b *Bed) Start(n *testbed.NetNS, name string, args ...string) (*exec.Cmd, error) {
	return b.StartInCgroup(n, "", name, args...)
}

// StartInCgroup is Start for a program that is in the cgroup of that folder ("" = this process's) from its start on.
func (b *Bed) StartInCgroup(n *testbed.NetNS, dir, name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if dir != "" {
		cgroup, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("open cgroup: %w", err)
		}
		defer cgroup.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(cgroup.Fd())
	}
	if err := startIn(n, cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	b.Defer(func() error { return Kill(cmd) })
	return cmd, nil
}

// startIn starts the command inside the namespace (nil = here).
func startIn(n *testbed.NetNS, cmd *exec.Cmd) error {
	if n == nil {
		return cmd.Start()
	}
	return n.Start(cmd)
}

// Cgroup makes a cgroup for as long as the experiment runs, and returns its folder. Programs that start later have
// left the cgroup when it is removed.
func (b *Bed) Cgroup(name string) (string, error) {
	r, err := identity.New(identity.Options{})
	if err != nil {
		return "", err
	}
	root, err := r.CgroupRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, fmt.Sprintf("netnice-lab-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a cgroup: %w", err)
	}
	b.Defer(func() error { return os.Remove(dir) })
	return dir, nil
}

// Kill kills a program, if it still runs, and waits for it.
func Kill(cmd *exec.Cmd) error {
	if cmd.ProcessState != nil {
		return nil
	}
	err := cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	_ = cmd.Wait() // a killed program ends with an error
	return err
}

// Output runs a program inside the namespace and returns its output.
func Output(ctx context.Context, n *testbed.NetNS, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &problem, &out)
	}
	return out.Bytes(), nil
}

// WaitForPort waits until a program inside the namespace listens on the port. It does not connect: iperf3 takes one
// connection at a time for its client.
func WaitForPort(ctx context.Context, n *testbed.NetNS, port uint16) error {
	for deadline := time.Now().Add(within); ; {
		var found bool
		err := n.Do(func() (err error) {
			found, err = listening(port)
			return err
		})
		if err != nil || found {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing listens on port %d after %v", port, within)
		}
		if err := testbed.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func listening(port uint16) (bool, error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return false, fmt.Errorf("list TCP sockets: %w", err)
		}
		for _, s := range sockets {
			if s.State == unix.BPF_TCP_LISTEN && s.ID.SourcePort == port {
				return true, nil
			}
		}
	}
	return false, nil
}

// filePort is the port of a FileServer.
const filePort = 8000

// FileServer starts Python's http.server with one file of that size (of zeros, no disk is read). It returns the
// file's address for curl.
func (b *Bed) FileServer(ctx context.Context, n *testbed.NetNS, at netip.Addr, size int64) (string, error) {
	dir, err := os.MkdirTemp("", "netnice-lab-www-")
	if err != nil {
		return "", fmt.Errorf("make folder to serve: %w", err)
	}
	b.Defer(func() error { return os.RemoveAll(dir) })
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		return "", fmt.Errorf("make file to serve: %w", err)
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		return "", fmt.Errorf("make file to serve: %w", err)
	}
	if _, err := b.Start(n, "python3", "-c", fileServer, dir, strconv.Itoa(filePort)); err != nil {
		return "", err
	}
	return fmt.Sprintf("http://%s:%d/file", at, filePort), WaitForPort(ctx, n, filePort)
}

// fileServer is `python3 -m http.server` without its log and with a copy buffer of 1 MB, because its own buffer
// would be the bottleneck.
const fileServer = `
import http.server, os, shutil, socketserver, sys
os.chdir(sys.argv[1])
class H(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
    def copyfile(self, source, out): shutil.copyfileobj(source, out, 1 << 20)
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, request_queue_size = True, 64
    def handle_error(self, *a): pass
S(("", int(sys.argv[2])), H).serve_forever()
`

// Curl downloads the address once and returns payload bytes per second, by curl's own figure.
func Curl(ctx context.Context, n *testbed.NetNS, url string) (float64, error) {
	out, err := Output(ctx, n, "curl", "-sS", "-o", "/dev/null", "-w", "%{speed_download}", url)
	if err != nil {
		return 0, err
	}
	rate, err := strconv.ParseFloat(string(out), 64)
	if err != nil {
		return 0, fmt.Errorf("curl printed %q: %w", out, err)
	}
	return rate, nil
}

// iperfPort is the port of IPerfServer.
const iperfPort = 5201

// IPerfServer starts iperf3 as a server.
func (b *Bed) IPerfServer(ctx context.Context, n *testbed.NetNS) error {
	if _, err := b.Start(n, "iperf3", "--server", "--port", strconv.Itoa(iperfPort)); err != nil {
		return err
	}
	return WaitForPort(ctx, n, iperfPort)
}

// IPerf sends with iperf3 for that long over that many connections and
// returns the payload bytes per second that the server received.
func IPerf(ctx context.Context, n *testbed.NetNS, to netip.Addr, d time.Duration, connections int) (float64, error) {
	out, err := Output(ctx, n, "iperf3", "--client", to.String(), "--port", strconv.Itoa(iperfPort), "--json",
		"--time", strconv.Itoa(int(d.Seconds()+0.5)), "--parallel", strconv.Itoa(connections))
	if err != nil {
		return 0, err
	}
	var report struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, fmt.Errorf("read what iperf3 printed: %w", err)
	}
	return report.End.Received.BitsPerSecond / 8, nil
}
