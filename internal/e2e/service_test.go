package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// netnice serves a service manager. The manager opens the socket and keeps it. netnice tells the manager that it is
// ready, that it is alive, and that it leaves.
func TestService(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := "@netnice-" + filepath.Base(t.TempDir()) + itoa(os.Getpid())
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	const path = "/run/netnice/netnice.sock"
	var socket *os.File
	s.do(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		defer l.Close()
		l.SetUnlinkOnClose(false)
		socket, err = l.File()
		return err
	})
	defer socket.Close()

	cmd := s.command("-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$0" daemon`, netniceBinary)
	cmd.Path, cmd.Args[0] = "/bin/sh", "sh"
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=4000000")
	cmd.ExtraFiles = []*os.File{socket}
	d := s.daemonOf(cmd, nil)

	var words []string
	hears := func(word string, limit time.Duration) bool {
		buf := make([]byte, 4096)
		for until := time.Now().Add(limit); time.Now().Before(until) && !slices.Contains(words, word); {
			_ = told.SetReadDeadline(until)
			n, err := told.Read(buf)
			if err != nil {
				break
			}
			words = append(words, strings.Fields(string(buf[:n]))...)
		}
		return slices.Contains(words, word)
	}
	if !hears("READY=1", 5*time.Second) || !hears("WATCHDOG=1", 10*time.Second) {
		t.Errorf("the service manager heard %q only", words)
	}
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-d.ended
	if !hears("STOPPING=1", 5*time.Second) {
		t.Errorf("the service manager heard %q only", words)
	}
	s.do(func() error {
		if _, err := os.Lstat(path); err != nil {
			return fmt.Errorf("the service manager's socket: %w", err)
		}
		return nil
	})
}

// Another program replaces a running daemon without a gap.
func TestReplaced(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	f := newField(s)
	x := f.send(testbed.SenderConfig{Connections: 2, UID: spare + 22})
	s.must("up")
	first := s.status().PID
	begin := s.must("set", "--user", itoa(spare+22), "--up", "5MB/s")
	f.holds("before", begin, 5e6, x.port)
	replaced := testbed.Now()
	done := s.must("up", "--replace")
	if now := s.status().PID; now == first {
		t.Errorf("pid %d before and after", now)
	}
	f.until(done.Add(time.Second))
	if got := f.rate(replaced, done.Add(time.Second), x.port); got > 5e6*1.03 {
		t.Errorf("%.0f bytes/s while the daemon was replaced, limited to 5e6", got)
	}
	f.holds("after", done, 5e6, x.port)
	s.must("down")
}
