package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"

	"github.com/netnice/netnice/internal/testutil"
)

const (
	stateFolder = "/var/lib/netnice"
	stateFile   = stateFolder + "/state.json"
)

// caller returns a client, outside of the stage, of a daemon on it.
func caller(t *testing.T, d *daemon) *client.Client {
	c := client.New(fmt.Sprintf("/proc/%d/root/run/netnice/netnice.sock", d.cmd.Process.Pid))
	t.Cleanup(c.Close)
	return c
}

// reboot puts the stage into the state after a reboot: the state file of another boot, and nothing in the kernel.
func (s *stage) reboot() {
	s.t.Helper()
	var text []byte
	s.do(func() (err error) {
		text, err = os.ReadFile(stateFile)
		return err
	})
	last := s.daemons[len(s.daemons)-1]
	last.kill()
	s.must("down")
	first, rest, _ := strings.Cut(string(text), "\n")
	at := strings.Index(first, `"boot_id":"`) + len(`"boot_id":"`)
	first = first[:at] + "another" + first[strings.Index(first[at:], `"`)+at:]
	s.do(func() error {
		if err := os.MkdirAll(stateFolder, 0o755); err != nil {
			return err
		}
		return os.WriteFile(stateFile, []byte(first+"\n"+rest), 0o600)
	})
	s.daemon()
}

// Limits of users, cgroups and the host are in force again after a reboot as soon as the daemon answers, also after
// kill -9. Limits with --persist=false are not.
func TestPersist(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := upStage(t)
	users := make([]string, 4)
	for i := range users {
		users[i] = itoa(spare + 6 + uint32(i))
	}
	x := s.python(options{uid: spare + 6}, "wait()\n")
	s.must("set", "--user", users[0], "--up", "1MB/s")
	s.must("set", "--user", users[1], "--up", "2MB/s", "--persist=false")
	s.must("set", "--user", users[2], "--up", "3MB/s", "--persist=false")
	if r := s.netnice("set", "--user", users[2], "--persist"); r.code != 0 || !strings.Contains(r.err, "at boot") && !strings.Contains(r.err, "enable netnice") {
		t.Errorf("%v, want a word about who starts the daemon", r)
	}
	s.must("set", "--pid", x.pid(), "--up", "4MB/s")
	if r := s.netnice("set", "--pid", x.pid(), "--persist"); !r.failedItself() || !strings.Contains(r.err, "does not outlive a reboot") || !strings.Contains(r.err, "write a rule") {
		t.Errorf("a process's limit that is to persist: %v", r)
	}
	if r := s.netnice("show", "--user", users[1]); !strings.Contains(r.out, "until a reboot") {
		t.Errorf("%v, want that it is for the time until a reboot", r)
	}
	hold := func(when string, want ...string) {
		t.Helper()
		nodes := s.nodes()
		if len(nodes) != len(want) {
			t.Errorf("%s: %d limits, want %q", when, len(nodes), want)
		}
		for _, w := range want {
			if n, there := nodes[w]; !there || len(n.Limits) != 1 || !n.Limits[0].Enforced {
				t.Errorf("%s: %s is %+v", when, w, n)
			}
		}
	}
	s.daemons[0].kill()
	s.daemon()
	hold("after a restart", "user:"+users[0], "user:"+users[1], "user:"+users[2], "pid:"+x.pid())
	s.reboot()
	hold("after a reboot", "user:"+users[0], "user:"+users[2])
	s.reboot()
	hold("after another", "user:"+users[0], "user:"+users[2])
	s.must("unset", "--user", users[0])
	s.reboot()
	hold("lifted", "user:"+users[2])
}

// A daemon on demand cannot keep a limit across a reboot, and refuses --persist. If no daemon runs, --persist starts
// one that stays.
func TestPersistOnDemand(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	name := itoa(spare + 7)
	s.must("set", "--user", name, "--up", "1MB/s")
	if r := s.netnice("set", "--user", name, "--persist"); !r.failedItself() || !strings.Contains(r.err, "systemctl enable --now netnice") {
		t.Errorf("on demand: %v", r)
	}
	s.must("unset", "--user", name)
	s.must("down")
	s.must("set", "--user", name, "--up", "1MB/s", "--persist")
	if s.status().OnDemand {
		t.Error("who wants a limit that persists got a daemon that leaves")
	}
}

// kill -9 comes at any moment. No answered request is lost; an unanswered one is in force completely or not at all.
func TestKilledWhileWriting(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestKilledBetweenChanges")
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	const writers, rounds = 3, 6
	var mu sync.Mutex
	answered, asked := map[string]uint64{}, map[string]uint64{}
	rate := uint64(1e6)
	for round := range rounds {
		d := s.daemon()
		list := s.nodes()
		for name, least := range answered {
			n, there := list[name]
			if !there || len(n.Limits) != 1 || n.Limits[0].BytesPerSec < least || n.Limits[0].BytesPerSec > asked[name] {
				t.Fatalf("round %d: %s is %+v, want %d to %d", round, name, n.Limits, least, asked[name])
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		for w := range writers {
			c := caller(t, d)
			writing.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					// Each writer has twenty users at most, as in a table that the daemon rewrites now and then
					subject := api.Subject{Kind: api.KindUser, ID: itoa(spare + uint32(100*w+i%20))}
					mu.Lock()
					rate++
					now := rate
					asked[subject.String()] = now
					mu.Unlock()
					if _, err := c.Set(ctx, api.SetRequest{Subject: subject, Wish: api.Wish{UpBytesPerSec: &now}}); err != nil {
						return
					}
					mu.Lock()
					answered[subject.String()] = now
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(50+rand.IntN(300)) * time.Millisecond)
		d.kill()
		stop()
		writing.Wait()
	}
	t.Logf("%d subjects, %d changes", len(answered), rate-1e6)
	if len(answered) < 5 {
		t.Errorf("only %d subjects were limited", len(answered))
	}
	s.reboot()
	if n := len(s.nodes()); n < len(answered) {
		t.Errorf("%d of %d limits are there after a reboot", n, len(answered))
	}
}

// On a full disk limits are set and lifted. The daemon tells the caller that the change is not saved. It saves the
// change as soon as the disk has free space.
func TestFullDisk(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestDiskThatCannotBeWritten")
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	s.do(func() error {
		if err := os.MkdirAll(stateFolder, 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", stateFolder, "tmpfs", 0, "size=64k,mode=0755")
	})
	d := s.daemon()
	name := itoa(spare + 8)
	s.must("set", "--user", name, "--up", "1MB/s")
	fill := filepath.Join(stateFolder, "fill")
	full := func() {
		s.do(func() error {
			f, err := os.Create(fill)
			if err != nil {
				return err
			}
			defer f.Close()
			for err == nil {
				_, err = f.Write(make([]byte, 1024))
			}
			return nil
		})
	}
	full()
	c := caller(t, d)
	told := false
	last := uint64(2e6)
	for ; last < 2e6+400 && !told; last++ { // these changes first fill the rest of the last page
		answer, err := c.Set(t.Context(), api.SetRequest{Subject: api.Subject{Kind: api.KindUser, ID: name}, Wish: api.Wish{UpBytesPerSec: &last}})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Warnings) > 0 {
			told = true
			if text := answer.Warnings[0]; !strings.Contains(text, "no space left on device") || !strings.Contains(text, "df ") {
				t.Errorf("%q, want what is full and a remedy", text)
			}
			break
		}
	}
	if !told {
		t.Fatal("the disk is not full")
	}
	if n := s.nodes()["user:"+name]; len(n.Limits) != 1 || n.Limits[0].BytesPerSec != last {
		t.Errorf("%+v stands, want %d", n.Limits, last)
	}
	if r := s.netnice("set", "--user", itoa(spare+9), "--up", "1MB/s"); r.code != 0 || !strings.Contains(r.err, "could not be written") {
		t.Errorf("a new limit on a full disk: %v", r)
	}
	if r := s.netnice("unset", "--user", itoa(spare+9)); r.code != 0 || !strings.Contains(r.err, "could not be written") {
		t.Errorf("a limit is lifted on a full disk: %v", r)
	}
	if st := s.status(); len(st.Problems) != 1 || st.Counters["state_not_written"] == 0 {
		t.Errorf("the status has %+v and %v", st.Problems, st.Counters)
	}
	s.do(func() error { return os.Remove(fill) })
	if !eventually(20*time.Second, func() bool { return len(s.status().Problems) == 0 }) {
		t.Errorf("there is room, and the state is not written: %+v", s.status().Problems)
	}
	d.kill()
	s.daemon()
	nodes := s.nodes()
	if n := nodes["user:"+name]; len(nodes) != 1 || len(n.Limits) != 1 || n.Limits[0].BytesPerSec != last {
		t.Errorf("after the restart there are %+v, want %s with %d", nodes, name, last)
	}
	s.must("set", "--user", name, "--up", "9MB/s")
	s.must("down")
	s.daemonGone = true
	s.do(func() error { return unix.Unmount(stateFolder, 0) })
}

// The service is ready before the network is configured, also where a unit before sysinit.target needs the network.
func TestUnitsOrder(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze (Debian: apt-get install systemd)")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"netnice.service", "netnice.socket"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "contrib", "systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, strings.ReplaceAll(string(text), "/usr/bin/netnice", "/bin/true"))
	}
	const service = "[Unit]\nDefaultDependencies=no\n%s\n[Service]\nType=oneshot\nExecStart=/bin/true\n"
	write("device.service", fmt.Sprintf(service, "After=network-pre.target\nBefore=network.target\nWants=network.target"))
	write("cloud.service", fmt.Sprintf(service, "After=network.target\nBefore=sysinit.target"))
	write("all.target", "[Unit]\nWants=netnice.service netnice.socket device.service cloud.service sysinit.target multi-user.target\n")
	verify := func() string {
		cmd := exec.Command(analyze, "verify", "./all.target")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, _ := cmd.CombinedOutput() // the text names the errors
		return string(out)
	}
	if out := verify(); strings.Contains(out, "cycle") || strings.Contains(out, "netnice") {
		t.Errorf("systemd-analyze verify says\n%s", out)
	}
	// A unit between network-pre.target and netnice closes a cycle. netnice therefore comes before network-pre.target.
	write("late.service", fmt.Sprintf(service, "After=network-pre.target\nBefore=netnice.service"))
	write("all.target", "[Unit]\nWants=netnice.service late.service\n")
	if out := verify(); !strings.Contains(out, "cycle") {
		t.Errorf("netnice is not before the network: systemd-analyze verify says %q", out)
	}
}
