package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// clients opens connections on request, reads all data, and prints their rates.
const clients = `
conns = []

def read(c):
    try:
        while True:
            n = len(c["s"].recv(1 << 16))
            if not n:
                break
            c["n"] += n
    except OSError:
        pass
    c["ended"] = True

for order in iter(wait, ""):
    words = order.split()
    if words[0] == "open":
        refused = 0
        for _ in range(int(words[2])):
            try:
                c = {"s": connect(words[1]), "n": 0, "ended": False}
            except OSError:
                refused += 1
                continue
            conns.append(c)
            threading.Thread(target=read, args=(c,), daemon=True).start()
        say("opened", refused)
    elif words[0] == "rates":
        before, begin = [c["n"] for c in conns], time.monotonic()
        time.sleep(float(words[1]))
        took = time.monotonic() - begin
        say("rates", *("%.0f" % ((c["n"] - b) / took) for c, b in zip(conns, before)))
    elif words[0] == "had":
        say("had", sum(c["n"] > 0 for c in conns), sum(c["ended"] for c in conns))
    elif words[0] == "close":
        c = conns.pop(int(words[1]))
        c["s"].shutdown(socket.SHUT_RDWR)
        c["s"].close()
        say("closed")
    elif words[0] == "ask":  # what a service answers
        s = connect(words[1])
        s.settimeout(5)
        if len(words) > 2:
            s.sendall(words[2].encode())
        try:
            say("answer", s.recv(1000).decode(errors="replace").split("\n")[0].strip())
        except OSError as e:
            say("answer", e)
        s.close()
    elif words[0] == "datagram":
        host, port = words[1].rsplit(":", 1)
        s = socket.socket(socket.AF_INET6 if "[" in host else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(5)
        s.sendto(words[2].encode(), (host.strip("[]"), int(port)))
        try:
            say("answer", s.recv(1000).decode(errors="replace").split("\n")[0].strip())
        except OSError as e:
            say("answer", e)
`

// zeros writes for ever, and has a name of its own.
const zeros = "#!/bin/sh\nexec cat /dev/zero\n"

// inetdStage is netnice inetd in A, and clients in B.
type inetdStage struct {
	*inbound
	conf    string
	dir     string
	daemon  *script
	clients *script
}

func newInetd(t *testing.T, conf string, flags ...string) *inetdStage {
	t.Helper()
	i := &inetdStage{inbound: newInbound(newStage(t), testutil.MustPair(t))}
	var err error
	if i.dir, err = os.MkdirTemp(work, "inetd"); err == nil { // users other than root may run the programs there
		err = os.Chmod(i.dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	i.conf = filepath.Join(i.dir, "inetd.conf")
	for name, text := range map[string]string{
		"zeros": zeros, "crash": "#!/bin/sh\nkill -SEGV $$\n", "whoami": "#!/bin/sh\nid -un; id -gn\n",
		"wait":  "#!/usr/bin/python3\nimport socket\ns = socket.socket(fileno=0)\nc, _ = s.accept()\nc.sendall(b'waited')\n",
		"dgram": "#!/usr/bin/python3\nimport socket\ns = socket.socket(fileno=0)\ndata, to = s.recvfrom(1000)\ns.sendto(b'got ' + data, to)\n",
	} {
		if err := os.WriteFile(filepath.Join(i.dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	i.write(conf)
	i.daemon = i.script(options{in: i.A}, append(append([]string{netniceBinary, "inetd"}, flags...), i.conf)...)
	i.clients = i.python(options{in: i.B}, clients)
	i.assertWithin("inetd serves", 5*time.Second, func() bool { return strings.Contains(i.daemon.wrong.String(), "serving") })
	return i
}

// write writes the configuration; DIR in it stands for the programs' folder.
func (i *inetdStage) write(conf string) {
	i.t.Helper()
	if err := os.WriteFile(i.conf, []byte(strings.ReplaceAll(conf, "DIR", i.dir)), 0o644); err != nil {
		i.t.Fatal(err)
	}
}

func (i *inetdStage) open(port, n int) {
	i.t.Helper()
	i.clients.tell(fmt.Sprintf("open %s:%d %d", i.A4, port, n))
	i.clients.read("opened")
}

func (i *inetdStage) ask(order string) string {
	i.t.Helper()
	i.clients.tell(order)
	return i.clients.read("answer")
}

// rates checks the rates of the sessions, in parts of 4 MB/s of IP bytes.
func (i *inetdStage) rates(what string, want ...float64) {
	i.t.Helper()
	const limit = 4e6
	for try := 1; ; try++ {
		begin := testbed.Now()
		i.clients.tell("rates 2")
		got := numbers(i.t, i.clients.read("rates"))
		bad := len(got) != len(want)
		for n := range got {
			got[n] *= perByte / limit
			bad = bad || got[n] < want[n]-0.04 || got[n] > want[n]+0.04
		}
		i.t.Logf("%s: %.3f of the limit, wanted %.3f", what, got, want)
		if !bad {
			return
		}
		if try == 4 {
			i.t.Errorf("%s: %.3f of the limit, want %.3f (%s)", what, got, want, cpus.excuse(begin, testbed.Now()))
			return
		}
	}
}

// The paper's third configuration: sessions share the limit of all, and the sessions of one service also have a
// limit of their own. The shares change with each session that begins, ends or wants less.
func TestInetdShares(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/inetd TestClients; the rates of sessions are tested here only")
	t.Parallel()
	i := newInetd(t, "7001 stream tcp nowait root DIR/zeros zeros\n7002 stream tcp nowait root DIR/zeros zeros @400KB/s\n", "--up", "4MB/s")
	i.open(7001, 1)
	i.rates("one session", 1)
	i.open(7001, 1)
	i.rates("two", 0.5, 0.5)
	i.open(7002, 2)
	i.rates("and two that have a limit", 0.4, 0.4, 0.1, 0.1)
	i.clients.tell("close 0")
	i.clients.read("closed")
	i.rates("one has ended", 0.8, 0.1, 0.1)
	if n := i.nodes()["pid:"+i.daemon.pid()]; n.Processes != 4 {
		t.Errorf("inetd and three sessions are shown as %+v", n)
	}
}

// There are many sessions at once, programs that crash, more connections than are allowed, and a reload of the file.
// No session gets stuck, no zombie stays, and inetd goes on.
func TestInetdLasts(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/inetd TestClients, TestClientsAreCounted")
	t.Parallel()
	i := newInetd(t, `
7001 stream tcp nowait root DIR/zeros zeros
7002 stream tcp nowait root DIR/crash crash @1MB/s
7003 stream tcp nowait.20 root DIR/zeros zeros
7004 stream tcp nowait/3 root DIR/zeros zeros
7005 stream tcp nowait nobody:daemon DIR/whoami whoami
7006 stream tcp wait root DIR/wait wait
7006 dgram udp wait root DIR/dgram dgram
7007 dgram udp nowait root DIR/dgram dgram
7010 stream tcp nowait root internal echo
7010 dgram udp wait root internal echo
7011 stream tcp nowait root internal daytime
7012 stream tcp nowait root internal chargen
7013 dgram udp6 wait root internal chargen
`, "--total", "8MB/s")
	at := func(port int) string { return fmt.Sprintf("%s:%d", i.A4, port) }
	for _, c := range []struct{ order, want string }{
		{"ask " + at(7005), "nobody"},
		{"ask " + at(7006), "waited"},
		{"ask " + at(7006), "waited"},
		{"datagram " + at(7006) + " one", "got one"},
		{"datagram " + at(7006) + " two", "got two"},
		{"datagram " + at(7007) + " three", "got three"},
		{"datagram " + at(7007) + " four", "got four"},
		{"ask " + at(7010) + " hello", "hello"},
		{"datagram " + at(7010) + " hello", "hello"},
		{fmt.Sprintf("ask [%s]:7010 hello", i.A6), "hello"},
		{fmt.Sprintf("datagram [%s]:7013 x", i.A6), "!\"#"},
		{"ask " + at(7011), fmt.Sprint(time.Now().Year())},
		{"ask " + at(7012), "!\"#"},
	} {
		if got := i.ask(c.order); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.order, got, c.want)
		}
	}
	for range 20 { // the program crashes
		i.ask("ask " + at(7002))
	}
	i.open(7003, 60)
	had := func(want string) func() bool {
		return func() bool {
			i.clients.tell("had")
			return i.clients.read("had") == want
		}
	}
	if !i.assertWithin("20 of 60 in a minute are served", 10*time.Second, had("20 40")) {
		t.Errorf("%v", "more or fewer than 20 of 60 connections were served, the others ended")
	}
	i.open(7004, 5)
	if !i.assertWithin("3 of 5 at a time", 10*time.Second, had("23 40")) {
		t.Error("more or fewer than 3 of 5 connections are served at a time")
	}
	i.open(7001, 200)
	if !i.assertWithin("200 sessions", 60*time.Second, had("223 40")) {
		t.Error("not all of 200 sessions at a time are served")
	}

	i.write("7001 stream tcp nowait root DIR/zeros zeros\n7020 stream tcp nowait root DIR/whoami whoami\n")
	if err := i.daemon.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	i.assertWithin("the file is read", 5*time.Second, func() bool { return strings.Contains(i.daemon.wrong.String(), "read again") })
	if got := i.ask("ask " + at(7020)); !strings.Contains(got, "root") {
		t.Errorf("a new service answers %q", got)
	}
	i.clients.tell("open " + at(7010) + " 1")
	if refused := i.clients.read("opened"); refused != "1" {
		t.Errorf("a service that has gone refused %s of 1", refused)
	}
	i.clients.close()
	if !i.assertWithin("the sessions end", 20*time.Second, func() bool { return len(children(t, i.daemon.cmd.Process.Pid)) == 0 }) {
		t.Errorf("processes stay: %v", children(t, i.daemon.cmd.Process.Pid))
	}
	if !i.assertWithin("and their limits", 10*time.Second, func() bool { return len(i.nodes()) == 1 }) {
		t.Errorf("limits stay: %d", len(i.nodes()))
	}
	if err := i.daemon.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-i.daemon.ended:
	case <-time.After(5 * time.Second):
		t.Error("inetd does not end")
	}
	if t.Failed() {
		t.Logf("inetd: %s", i.daemon.wrong.String())
	}
}

// children lists the child processes of a process, zombies included.
func children(t *testing.T, pid int) []string {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err == nil {
			list = append(list, strings.Fields(string(text))...)
		}
	}
	return list
}
