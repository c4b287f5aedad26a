package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// daemon is a daemon that a test started in the foreground.
type daemon struct {
	cmd   *exec.Cmd
	log   lockedBuffer
	ended chan struct{}
}

// daemon starts a daemon and waits until it answers.
func (s *stage) daemon() *daemon {
	s.t.Helper()
	return s.daemonIn(nil)
}

// daemonIn is daemon for one in a network namespace (nil: the machine's own).
func (s *stage) daemonIn(in *testbed.NetNS) *daemon {
	s.t.Helper()
	config := s.config
	if config == "" {
		config = "/run/no-rules" // not the machine's rules
	}
	args := []string{"daemon", "--verbose", "--config-dir", config}
	if !s.preload {
		args = append(args, "--preload=false") // these programs are half of a start's processor time
	}
	if s.root != "" {
		args = append(args, "--cgroup-root", s.root)
	}
	if s.admins != "" {
		args = append(args, "--admin-group", s.admins)
	}
	return s.daemonOf(s.command(args...), in)
}

// daemonStart has one daemon at a time load its programs, so a processor is left for measurements.
var daemonStart sync.RWMutex

// daemonOf is daemonIn for a command that becomes a daemon.
func (s *stage) daemonOf(cmd *exec.Cmd, in *testbed.NetNS) *daemon {
	s.t.Helper()
	d := &daemon{cmd: cmd, ended: make(chan struct{})}
	d.cmd.Stderr = &d.log
	daemonStart.Lock()
	defer daemonStart.Unlock()
	if err := s.start(d.cmd, in); err != nil {
		s.t.Fatalf("start the daemon: %v", err)
	}
	go func() {
		_ = d.cmd.Wait() // the log has its exit status
		close(d.ended)
	}()
	s.mu.Lock()
	s.daemons = append(s.daemons, d)
	s.mu.Unlock()
	begin := time.Now()
	if !eventually(30*time.Second, func() bool { // other daemons may load programs, too, and take the CPUs
		if !strings.Contains(d.log.String(), "netnice is ready") && time.Since(begin) < time.Second {
			return false // a request takes processor time from the daemon
		}
		r := s.netnice("status", "--json")
		return r.code == 0 && bytes.Contains([]byte(r.out), fmt.Appendf(nil, "\"pid\": %d", d.cmd.Process.Pid))
	}) {
		s.t.Fatalf("the daemon does not answer:\n%s", d.log.String())
	}
	return d
}

// kill ends a daemon without a warning.
func (d *daemon) kill() {
	err := d.cmd.Process.Kill() // it may have ended already
	select {
	case <-d.ended:
	case <-time.After(timeoutScale * 20 * time.Second):
		panic(fmt.Sprintf("daemon %d was killed (%v) and does not end:\n%s", d.cmd.Process.Pid, err, threads(d.cmd.Process.Pid)))
	}
}

// threads returns the status, wait channels and kernel stacks of a process's threads.
func threads(pid int) string {
	var out strings.Builder
	for _, name := range []string{"status", "wchan", "stack"} {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, name))
		for _, file := range files {
			text, err := os.ReadFile(file)
			fmt.Fprintf(&out, "%s: %s%v\n", file, text, err)
		}
	}
	return out.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
