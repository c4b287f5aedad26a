package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
)

// The tests in hostile_*_test.go have a user, mallory. Mallory tries to leave limits, to limit others, and to take
// the daemon from them. Each attempt is a subtest. alice is another user.

// hostile is a stage with a daemon, these users, and limits of the administrator.
type hostile struct {
	*field
	d              *daemon
	mallory, alice uint32
	sub            uint32 // a user id that /etc/subuid gives to mallory
	home           string // mallory's home
	dir            string // folder of the administrator's rules
}

const malloryLimit = 3e6 // bytes/s, set by the administrator

func newHostile(t *testing.T, spare uint32, rules string) *hostile {
	t.Helper()
	s := newStage(t)
	h := &hostile{mallory: spare + 30, alice: spare + 31, sub: spare + 8}
	root, err := os.MkdirTemp(work, "hostile-")
	if err != nil {
		t.Fatal(err)
	}
	h.dir, h.home = filepath.Join(root, "etc"), filepath.Join(root, "mallory")
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	passwd = fmt.Appendf(passwd, "mallory-%d:x:%[1]d:%[1]d::%s:/bin/sh\nalice-%d:x:%[3]d:%[3]d::/nonexistent:/bin/sh\n", h.mallory, h.home, h.alice)
	subuid := fmt.Sprintf("%d:%d:4\n", h.mallory, h.sub)
	for path, text := range map[string]string{"passwd": string(passwd), "subuid": subuid, "etc/netnice.toml": rules, "mallory/.profile": ""} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{root: 0o755, h.dir: 0o755, h.home: 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(h.home, int(h.mallory), int(h.mallory)); err != nil {
		t.Fatal(err)
	}
	replaced := []string{"passwd", "subuid"}
	for _, name := range replaced {
		if _, err := os.Stat("/etc/" + name); err != nil {
			t.Skipf("%v: the test puts another in its place", err)
		}
	}
	s.do(func() error {
		for _, name := range replaced {
			at := "/etc/" + name
			if err := unix.Mount(filepath.Join(root, name), at, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mount on %s: %w", at, err)
			}
		}
		return nil
	})
	s.config = h.dir
	h.field = newField(s)
	h.d = s.daemon()
	h.must("set", "--user", itoa(h.mallory), "--up", fmt.Sprintf("%.0fB/s", malloryLimit))
	return h
}

// The method as runs netnice as a given user.
func (h *hostile) as(uid uint32, args ...string) result {
	h.t.Helper()
	return h.run(h.under(uid, h.command(args...)), nil)
}

func (h *hostile) under(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Setpgid: true}
	cmd.Env = []string{"HOME=" + h.home, "PATH=/usr/bin:/bin"}
	return cmd
}

// sleeper starts an idle process of a user.
func (h *hostile) sleeper(uid uint32) *script {
	h.t.Helper()
	return h.script(options{uid: uid}, "/bin/sleep", "600")
}

// attempt runs one attempt, and checks afterwards that the state that must not change is unchanged.
func (h *hostile) attempt(t *testing.T, name string, try func(h *hostile)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		sub := *h
		f := *h.field
		s := &stage{t: t, mounts: h.mounts, env: h.env, config: h.config, daemons: h.daemons}
		f.stage, sub.field = s, &f
		try(&sub)
		sub.unchanged()
	})
}

// unchanged checks that the daemon lives, soon answers root, and still has the administrator's limits for mallory.
func (h *hostile) unchanged() {
	h.t.Helper()
	begin := time.Now()
	nodes := h.nodes()
	if took := time.Since(begin); took > 5*time.Second {
		h.t.Errorf("the daemon answers root after %v", took)
	}
	if h.status().PID != h.d.cmd.Process.Pid {
		h.t.Error("another daemon answers")
	}
	n := nodes["user:"+h.name()]
	if rate := adminsUp(n); rate != malloryLimit {
		h.t.Errorf("the administrator's limit on mallory is %d bytes/s now: %+v", rate, n)
	}
	for subject, n := range nodes {
		if n.UID == 0 && !strings.HasPrefix(subject, "rule:") {
			h.t.Errorf("root is limited: %s %+v", subject, n)
		}
	}
}

func (h *hostile) name() string { return fmt.Sprintf("mallory-%d", h.mallory) }

// adminsUp returns the administrator's limit on egress; 0 = none.
func adminsUp(n api.Node) uint64 {
	for _, l := range n.Limits {
		if l.Owner == "admin" && l.Direction == api.Up {
			return l.BytesPerSec
		}
	}
	return 0
}

// denied checks that netnice refused a command of mallory's with a remedy.
func (h *hostile) denied(r result) {
	h.t.Helper()
	if r.code == 0 || !strings.Contains(r.err, "sudo netnice ") {
		h.t.Errorf("want a refusal that names the remedy: %v", r)
	}
}

// asks is the head of Python programs that send requests to the daemon.
const asks = `
import json
SOCKET = "/run/netnice/netnice.sock"

def link(timeout=20):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(timeout)
    s.connect(SOCKET)
    return s

# Sends raw bytes, and returns the status and the body of the answer; 0: there was none.
def raw(data, s=None):
    with s or link() as s:
        try:
            s.sendall(data)
        except OSError:
            pass
        got = b""
        try:
            while True:
                more = s.recv(1 << 16)
                if not more:
                    break
                got += more
        except OSError:
            pass
    head, _, body = got.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head.startswith(b"HTTP/") else 0), body

def request(method, path, body=b""):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return (f"{method} {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

def ask(method, path, body=b""):
    return raw(request(method, path, body))

def up(kind, id, rate):
    return {"subject": {"kind": kind, "id": id}, "wish": {"up_bytes_per_sec": rate}}
`

// program runs a Python program of mallory's to its end, and decodes its output as JSON.
func (h *hostile) program(to any, text string, args ...string) {
	h.t.Helper()
	x := h.python(options{uid: h.mallory}, asks+text, args...)
	defer x.close()
	h.jsonOf(x.read("answer"), to)
}

func (h *hostile) jsonOf(text string, to any) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		h.t.Fatalf("%v: %s", err, text)
	}
}

// usage holds the resources that the daemon has used.
type usage struct {
	at  time.Time
	cpu time.Duration
	rss int // bytes
}

func (h *hostile) usage() (u usage) {
	h.t.Helper()
	pid := itoa(h.d.cmd.Process.Pid)
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		h.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	const utime, stime, rss, tick = 11, 12, 21, 10 * time.Millisecond
	number := func(i int) int {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			h.t.Fatal(err)
		}
		return n
	}
	return usage{time.Now(), time.Duration(number(utime)+number(stime)) * tick, number(rss) * os.Getpagesize()}
}

// These are the bounds of the daemon's use of a processor and of memory while one user does all it can.
const (
	mostCPU = 0.9
	mostRSS = 256 << 20
)

// bounded checks the resources that the daemon has used since then.
func (h *hostile) bounded(since usage) {
	h.t.Helper()
	now := h.usage()
	cpu := (now.cpu - since.cpu).Seconds() / now.at.Sub(since.at).Seconds()
	h.t.Logf("the daemon used %.2f of a processor in %v, and has %d MB", cpu, now.at.Sub(since.at).Round(time.Millisecond), now.rss>>20)
	if cpu > mostCPU || now.rss > mostRSS {
		h.t.Errorf("the daemon used %.2f of a processor and %d MB, want %.2f and %d", cpu, now.rss>>20, mostCPU, mostRSS>>20)
	}
}

// sent returns the egress of A for ports over a while from now, as a part of a limit.
func (h *hostile) sent(over time.Duration, limit float64, ports ...uint16) float64 {
	h.t.Helper()
	at := testbed.Now()
	return h.rate(at, at.Add(over), ports...) / limit
}
