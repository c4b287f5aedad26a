package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// why asks for the limits that hold a process's connections.
func (s *stage) why(args ...string) api.Why {
	s.t.Helper()
	r := s.netnice(append([]string{"why", "--json"}, args...)...)
	if r.code != 0 {
		s.t.Fatal(r)
	}
	var w api.Why
	if err := json.Unmarshal([]byte(r.out), &w); err != nil {
		s.t.Fatalf("%v: %v", r, err)
	}
	return w
}

// socketOf finds the socket of a descriptor.
func socketOf(t *testing.T, w api.Why, fd string) api.WhySocket {
	t.Helper()
	n, err := strconv.Atoi(fd)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(w.Sockets, func(s api.WhySocket) bool { return slices.Contains(s.FDs, n) })
	if i < 0 {
		t.Fatalf("fd %s is not in %+v", fd, w)
	}
	return w.Sockets[i]
}

// binding returns the subject of the limit that binds, "" for none.
func binding(s api.WhySocket) string {
	var all []string
	for _, l := range s.Limits {
		if l.Binds {
			all = append(all, l.Subject.String()+" "+string(l.Direction))
		}
	}
	return strings.Join(all, ", ")
}

// A process has three connections. The one that sends all it may is bound by the lowest limit on its path. No limit
// binds the others: one has nothing to send, and the other's receiver does not read.
func TestWhy(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	a := f.ports + 1
	deaf := f.python(options{in: f.B}, `
l = socket.create_server((sys.argv[1], 6100))
say("ready")
c, _ = l.accept()
wait()
`, f.B4.String())
	deaf.read("ready")
	x := f.python(options{in: f.A, uid: spare + 24}, `
s, idle, deaf = connect(sys.argv[1]), connect(sys.argv[2]), connect(sys.argv[3])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect((sys.argv[3].split(":")[0], 9))
threading.Thread(target=flood, args=(s,), daemon=True).start()
threading.Thread(target=flood, args=(deaf,), daemon=True).start()
say("fds", s.fileno(), idle.fileno(), deaf.fileno(), u.fileno())
wait()
def datagrams():
    while True:
        try:
            u.send(bytes(1400))
        except OSError:
            pass
threading.Thread(target=datagrams, daemon=True).start()
wait()
`, f.to(a), f.to(a+1), f.B4.String()+":6100")
	fds := strings.Fields(x.read("fds"))
	user := itoa(spare + 24)
	f.must("set", "--user", user, "--up", "20MB/s")
	f.must("set", "--pid", x.pid(), "--up", "4MB/s")
	time.Sleep(500 * time.Millisecond)
	own, users := "pid:"+x.pid()+" up", "user:"+user+" up"

	expect := func(what, binds string, rate float64) {
		t.Helper()
		w := f.why(x.pid())
		s := socketOf(t, w, fds[0])
		t.Logf("%s: %+v", what, s)
		if got := binding(s); got != binds || s.Up != api.BoundByLimit {
			t.Errorf("%s: %q binds (%s), want %q", what, got, s.Up, binds)
		}
		var used []api.WhyLimit
		for _, l := range s.Limits {
			if l.Binds {
				used = append(used, l)
			}
			if l.Owner != "admin" || l.Rule != nil || !l.Holds {
				t.Errorf("%s: %+v, want one of the administrator's that holds", what, l)
			}
		}
		if len(s.Limits) != 2 || s.Limits[0].Subject.String()+" up" != own {
			t.Errorf("%s: limits are %+v, want the process's and the user's around it", what, s.Limits)
		}
		if len(used) == 1 {
			f.near(what+": used", testbed.Now().Add(-time.Second), used[0].Used, 1, 0.05)
		}
		if s.SentBytesPerSec == nil {
			t.Fatalf("%s: no rate in %+v", what, s)
		}
		f.near(what+": sent", testbed.Now().Add(-time.Second), float64(*s.SentBytesPerSec), rate, 0.06)
		if s := socketOf(t, w, fds[1]); binding(s) != "" || s.Up != api.NothingToSend {
			t.Errorf("%s: the idle connection is %+v", what, s)
		}
		if s := socketOf(t, w, fds[2]); binding(s) != "" || s.Up != api.BoundElsewhere {
			t.Errorf("%s: the connection that nobody reads is %+v", what, s)
		}
		if s := socketOf(t, f.why(x.pid()+"/"+fds[1], "--for", "200ms"), fds[1]); s.Protocol != "tcp" || s.Remote != f.to(a+1) {
			t.Errorf("%s: %+v, want only fd %s", what, s, fds[1])
		}
	}
	expect("the process's", own, 4e6)
	f.must("set", "--user", user, "--up", "2MB/s")
	time.Sleep(500 * time.Millisecond)
	expect("the user's", users, 2e6)

	x.tell("datagrams")
	time.Sleep(time.Second)
	if s := socketOf(t, f.why(x.pid(), "--fd", fds[3]), fds[3]); binding(s) != users || s.Protocol != "udp" {
		t.Errorf("a flood of datagrams: %+v, want the user's limit to bind", s)
	}

	// The owner of the process may ask, no other user may, and everybody else gets a remedy.
	ask := func(uid uint32, arg string) result {
		cmd := f.command("why", arg, "--for", "100ms")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return f.run(cmd, nil)
	}
	if r := ask(spare+24, x.pid()); r.code != 0 || !strings.Contains(r.out, "binds") {
		t.Errorf("their own: %v", r)
	}
	for _, c := range []struct {
		r    result
		want []string
	}{
		{ask(spare+1, x.pid()), []string{"belongs to another user", "sudo netnice why " + x.pid()}},
		{ask(0, x.pid()+"/0"), []string{"is no socket", "ls -l /proc/" + x.pid() + "/fd"}},
		{ask(0, x.pid()+"/999"), []string{"no file 999 open", "ls -l /proc/" + x.pid() + "/fd"}},
		{ask(0, "1"), []string{"stands for the whole machine", "netnice show --host"}},
		{ask(0, x.pid()+"/x"), []string{"no file descriptor"}},
	} {
		for _, want := range c.want {
			if !c.r.failedItself() || !strings.Contains(c.r.err, want) {
				t.Errorf("%v, want %q", c.r, want)
			}
		}
	}
	f.must("unset", "--user", user)
	f.must("unset", "--pid", x.pid())
	if w := f.why(x.pid(), "--for", "200ms"); len(w.Sockets) != 0 || w.Free < 4 {
		t.Errorf("nothing is limited, why says %+v", w)
	}
}

// Ingress is bound by the queue in which it waits. netnice names a rule with its file and line.
func TestWhyReceiving(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestWhy and internal/observe TestWhyVerdicts")
	t.Parallel()
	spare := newUsers()
	s := newStage(t)
	dir, err := os.MkdirTemp(work, "rules-")
	if err != nil {
		t.Fatal(err)
	}
	s.config = dir
	uid := spare + 3 // the rule must not match programs of other tests
	python, err := filepath.EvalSymlinks(interpreter(t))
	if err != nil {
		t.Fatal(err)
	}
	rule := fmt.Sprintf("\n[[rule]]\nname = \"reader\"\nprogram = %q\nuser = %q\ndown = \"3MB/s\"\n", python, itoa(uid))
	if err := os.WriteFile(filepath.Join(dir, "netnice.toml"), []byte(rule), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newInbound(s, testutil.MustPair(t))
	x := f.python(options{in: f.A, uid: uid}, `
l = socket.create_server((sys.argv[1], 6200))
say("ready")
c, _ = l.accept()
say("fd", c.fileno())
while c.recv(1 << 16):
    pass
wait()
`, f.A4.String())
	x.read("ready")
	y := f.python(options{in: f.B}, `flood(connect(sys.argv[1]))`, f.A4.String()+":6200")
	fd := x.read("fd")
	if !f.assertWithin("the rule holds", 3*time.Second, func() bool { _, there := f.nodes()["pid:"+x.pid()]; return there }) {
		t.Fatal("it does not")
	}
	time.Sleep(1500 * time.Millisecond)
	w := f.why(x.pid())
	in := socketOf(t, w, fd)
	t.Logf("%+v", in)
	if binding(in) != "pid:"+x.pid()+" down" || in.Down != api.BoundByLimit || in.Up != api.NothingToSend {
		t.Errorf("%+v, want the process's limit on what comes in to bind, and nothing what is sent", in)
	}
	for _, l := range in.Limits {
		if l.Rule == nil || l.Rule.Name != "reader" || l.Rule.Line != 2 {
			t.Errorf("%+v was set by rule reader in line 2", l)
		}
		f.near("received", testbed.Now().Add(-time.Second), l.Used, 1, 0.05)
	}
	f.must("set", "--pid", x.pid(), "--total", "2MB/s")
	time.Sleep(1500 * time.Millisecond)
	if in := socketOf(t, f.why(x.pid()), fd); binding(in) != "pid:"+x.pid()+" total" || in.Down != api.BoundByLimit {
		t.Errorf("%+v, want the lower limit on both ways to bind", in)
	}
	y.close()
	if w.Sockets[0].FDs[0] == in.FDs[0] || binding(w.Sockets[0]) != "" {
		t.Errorf("%+v, want the listener first, which nothing binds", w.Sockets)
	}
	if !eventually(20*time.Second, func() bool { // the socket's backlog drains first
		return !slices.ContainsFunc(f.why(x.pid(), "--for", "300ms").Sockets, func(s api.WhySocket) bool { return binding(s) != "" })
	}) {
		t.Errorf("nothing comes any more, why says %+v", f.why(x.pid()))
	}
}
