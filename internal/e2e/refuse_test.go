package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// failedItself reports whether netnice has failed, by an exit code of its own (netnice(1), EXIT STATUS).
func (r result) failedItself() bool { return 1 <= r.code && r.code <= 5 || r.code == 125 }

// refused checks that netnice failed as it should: by an exit code of its own, one line with the reason, and a
// remedy below it.
func (s *stage) refused(r result, why, remedy string) {
	s.t.Helper()
	lines := strings.Split(strings.TrimRight(r.err, "\n"), "\n")
	if !r.failedItself() || !strings.HasPrefix(lines[0], "netnice: ") || !strings.Contains(lines[0], why) {
		s.t.Errorf("want a failure of netnice's own and %q: %v", why, r)
		return
	}
	if len(lines) < 2 || !strings.HasPrefix(lines[1], "  ") || !strings.Contains(strings.Join(lines[1:], "\n"), remedy) {
		s.t.Errorf("want a remedy with %q: %v", remedy, r)
	}
}

// asUser runs netnice as a user without privileges.
func (s *stage) asUser(args ...string) result {
	s.t.Helper()
	cmd := s.command(args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return s.run(cmd, nil)
}

// zombie makes a process that has ended and whose parent does not wait for it.
func zombie(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	if !eventually(2*time.Second, func() bool { return !lives(cmd.Process.Pid) }) {
		t.Fatal("true does not end")
	}
	return cmd.Process.Pid
}

// netnice refuses invalid input before anything changes, with and without a daemon.
func TestRefusedInput(t *testing.T) {
	// Not parallel: it counts what the whole machine holds.
	s := newStage(t)
	before := ours(t)
	dead := itoa(zombie(t))
	self := itoa(os.Getpid())
	for _, when := range []string{"without a daemon", "with a daemon"} {
		for _, c := range []struct {
			args        []string
			why, remedy string
		}{
			{[]string{"set", "--pid", "4194303", "--up", "1MB/s"}, "there is no process 4194303", "ps -e"},
			{[]string{"set", "--pid", dead, "--up", "1MB/s"}, "has ended", "ps -e"},
			{[]string{dead, "1MB/s"}, "has ended", "ps -e"},
			{[]string{"set", "--pid", self, "--up", "10mbps"}, "bits or bytes", "10mbit"},
			{[]string{"set", "--pid", self, "--up", "10"}, "no unit", "10B/s"},
			{[]string{"set", "--pid", self, "--up", "-1MB/s"}, "negative", ""},
			{[]string{"set", "--pid", self, "--up", "fast"}, "fast", ""},
			{[]string{"set", "--pid", self}, "no limit given", "--up"},
			{[]string{"set", "--up", "1MB/s"}, "no subject given", "--pid"},
			{[]string{"nlimit", "-p", self, "-o", "fast"}, "fast", ""},
			{[]string{"run", "--up", "1MB/s"}, "no command given", "netnice run"},
			{[]string{"frobnicate"}, "neither a command nor a process id", "netnice --help"},
		} {
			s.refused(s.netnice(c.args...), c.why, c.remedy)
		}
		if when == "without a daemon" {
			if r := s.netnice("status"); r.code != 5 {
				t.Errorf("a daemon was started for a command that was refused: %v", r)
			}
			for o := range added(t, before) {
				t.Errorf("%v was made for a command that was refused", o)
			}
			s.daemon()
		}
	}
	s.refused(s.netnice("set", "--user", "no-such-user", "--up", "1MB/s"), "no user is called", "getent")
	s.refused(s.netnice("set", "--cgroup", "/no/such/cgroup", "--up", "1MB/s"), "no cgroup", "")
	if nodes := s.nodes(); len(nodes) > 0 {
		t.Errorf("limits were set: %+v", nodes)
	}
}

// A user without the right gets a remedy.
func TestRefusedUser(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	self := itoa(os.Getpid())
	s.refused(s.asUser("set", "--pid", self, "--up", "1MB/s"), "only root can start one", "sudo netnice up")
	s.refused(s.asUser("daemon"), "only root", "sudo netnice")
	s.refused(s.asUser("up"), "only root", "sudo netnice up")
	if files := s.files(); len(files) > 0 {
		t.Errorf("files were made: %q", files)
	}
	s.daemon()
	s.refused(s.asUser("set", "--pid", self, "--up", "1MB/s"), "", "sudo netnice set")
	s.refused(s.asUser("set", "--user", "root", "--up", "1MB/s"), "", "sudo netnice set")
	s.refused(s.asUser("set", "--host", "--up", "1MB/s"), "", "sudo netnice set")
	s.refused(s.asUser("down"), "", "sudo netnice down")
	s.must("set", "--user", itoa(spare), "--up", "1MB/s")
	s.refused(s.asUser("unset", "--user", itoa(spare)), "", "sudo netnice unset")
	nodes := s.nodes()
	if len(nodes) != 1 || nodes["user:"+itoa(spare)].Limits[0].BytesPerSec != 1e6 {
		t.Errorf("limits are %+v", nodes)
	}
	// These users may limit their own processes, and see everything.
	x := s.script(options{uid: 65534}, "sleep", "60")
	if r := s.asUser("set", "--pid", x.pid(), "--up", "1MB/s"); r.code != 0 {
		t.Errorf("a user limits a process of theirs: %v", r)
	}
	if r := s.asUser("ls"); r.code != 0 || !strings.Contains(r.out, "pid:"+x.pid()) {
		t.Errorf("a user lists limits: %v", r)
	}
	// A limit of the administrator's on the process stays, whatever these users do.
	s.must("set", "--pid", x.pid(), "--up", "2MB/s")
	if r := s.asUser("unset", "--pid", x.pid()); r.code != 0 {
		t.Errorf("a user takes a limit of theirs back: %v", r)
	}
	if n := s.nodes()["pid:"+x.pid()]; len(n.Limits) != 1 || n.Limits[0].BytesPerSec != 2e6 {
		t.Errorf("the administrator's limit became %+v", n.Limits)
	}
}

// netnice refuses a second daemon, which does not disturb the first.
func TestRefusedSecondDaemon(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestSecondDaemon")
	t.Parallel()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{})
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	r := f.netnice("daemon")
	if r.code != 1 || !strings.Contains(r.err, "a netnice daemon runs already") || !strings.Contains(r.err, "netnice status") {
		t.Errorf("a second daemon: %v", r)
	}
	r = f.netnice("daemon", "--socket", "/run/other/other.sock")
	if r.code != 1 || !strings.Contains(r.err, "a netnice daemon runs already") {
		t.Errorf("a second daemon with the same state: %v", r)
	}
	f.holds("the first's", r.at, 5e6, x.port)
	if st := f.status(); st.PID != f.daemons[0].cmd.Process.Pid {
		t.Errorf("the daemon is %d now", st.PID)
	}
}

// A state file that the daemon cannot read stops the daemon, and not the limits in force.
func TestRefusedState(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestStateThatCannotBeUsed")
	t.Parallel()
	const path = "/var/lib/netnice/state.json"
	f := newField(newStage(t))
	made := map[object]bool{}
	x := f.send(testbed.SenderConfig{})
	for name, spoil := range testutil.SubsetOf(map[string]func(good []byte) error{
		"no file":     func([]byte) error { return os.Mkdir(path, 0o700) },
		"from future": func([]byte) error { return os.WriteFile(path, []byte(`{"version": 99}`), 0o600) },
		"anybody's": func(good []byte) error {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o666)
		},
		"a link": func(good []byte) error {
			if err := os.WriteFile("/run/state", good, 0o600); err != nil {
				return err
			}
			return os.Symlink("/run/state", path)
		},
	}, "no file", "anybody's") {
		t.Run(name, func(t *testing.T) {
			d := f.daemon()
			f.must("set", "--pid", x.pid(), "--up", "5MB/s")
			maps.Copy(made, objectsOf(t, d.cmd.Process.Pid))
			d.kill()
			var good []byte
			f.do(func() (err error) {
				if good, err = os.ReadFile(path); err != nil {
					return err
				}
				if err := os.Remove(path); err != nil {
					return err
				}
				return spoil(good)
			})
			r := f.netnice("daemon")
			if !r.failedItself() || !strings.Contains(r.err, path) || !strings.Contains(r.err, "sudo mv "+path) {
				t.Errorf("a daemon with a spoilt state: %v", r)
			}
			f.refused(f.netnice("set", "--pid", x.pid(), "--up", "1MB/s"), path, "sudo mv "+path)
			f.holdsFor("the limit in force", testbed.Now(), span/2, 5e6, 0.05, x.port)
			f.do(func() error { return os.Rename(path, path+".bad") }) // follows the remedy
			d = f.daemon()
			if n := f.nodes()["pid:"+x.pid()]; len(n.Limits) != 1 || n.Limits[0].BytesPerSec != 5e6 {
				t.Errorf("adopted %+v", n.Limits)
			}
			f.free("after down", f.must("down"), freely, x.port)
			<-d.ended
			f.do(func() error { return os.RemoveAll(path + ".bad") })
		})
	}
}

// The daemon keeps a damaged state file aside and reports it. The limits in force hold, and no lifted one returns.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{})
	f.must("set", "--user", itoa(spare), "--up", "4MB/s")
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	f.must("unset", "--user", itoa(spare))
	f.daemons[0].kill()
	f.do(func() error {
		text, err := os.ReadFile(stateFile)
		if err != nil {
			return err
		}
		last := strings.LastIndexByte(strings.TrimSuffix(string(text), "\n"), '\n')
		return os.WriteFile(stateFile, text[:last+1], 0o600) // without the record that lifts
	})
	f.daemon()
	f.holdsFor("the limit in force", testbed.Now(), span/2, 5e6, 0.05, x.port)
	nodes := f.nodes()
	if n := nodes["pid:"+x.pid()]; len(nodes) != 1 || len(n.Limits) != 1 || n.Limits[0].BytesPerSec != 5e6 {
		t.Errorf("%+v are limited", nodes)
	}
	r := f.netnice("status")
	if !strings.Contains(r.out, stateFile+".damaged-") || !strings.Contains(r.out, "sudo rm") {
		t.Errorf("%v, want where the damaged file is kept, and what to do", r)
	}
	if d := f.daemons[1]; !strings.Contains(d.log.String(), "damaged") {
		t.Errorf("the log says\n%s", &d.log)
	}
}

// On a machine that lacks a requirement, netnice names it.
func TestRefusedMachine(t *testing.T) {
	// Not parallel: it takes mounts away.
	spare := newUsers()
	for name, c := range map[string]struct {
		change      func() error
		flags       []string
		why, remedy string
	}{
		"cgroup v1 only": {
			func() error { return unix.Unmount(cgroupMount(), unix.MNT_DETACH) }, nil,
			"cgroup v2 is not mounted", "mount -t cgroup2",
		},
		"nowhere to pin": {
			func() error { return nil },
			[]string{"--pin-dir", "/run/pins/netnice"},
			"/run/pins", "mount -t bpf",
		},
		"no bpf file system": {
			func() error { return os.Mkdir("/run/pins", 0o700) },
			[]string{"--pin-dir", "/run/pins/netnice"},
			"/run/pins", "mount -t bpf",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.daemonGone = true // netnice cannot remove the stage's limits then
			before := ours(t)
			s.do(c.change)
			netnice := func(args ...string) result {
				// The namespace has no first process whose mounts show a cgroup v2.
				cmd := exec.Command("unshare", append([]string{"--pid", "--fork", "--mount-proc", netniceBinary}, args...)...)
				cmd.Env = s.env
				return s.run(cmd, nil)
			}
			r := netnice(append([]string{"daemon"}, c.flags...)...)
			if !r.failedItself() || !strings.Contains(r.err, c.why) || !strings.Contains(r.err, c.remedy) {
				t.Errorf("want %q and %q: %v", c.why, c.remedy, r)
			}
			if len(c.flags) == 0 {
				s.refused(netnice("set", "--user", itoa(spare), "--up", "1MB/s"), c.why, c.remedy)
			}
			for o := range added(t, before) {
				t.Errorf("%v is left", o)
			}
			if files := s.files(); len(files) > 0 && fmt.Sprint(files) != "[/run/pins]" {
				t.Errorf("left in files: %q", files)
			}
		})
	}
}

// Commands of ip netns exec see another sysfs, without cgroups: pins made there would vanish with it.
func TestRefusedWhereHidden(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `umount -l /sys && mount -t sysfs none /sys && exec "$@"`, "sh", netniceBinary, "up")
	cmd.Env = s.env
	s.refused(s.run(cmd, nil), "cgroup v2 is hidden", "nsenter")
}
