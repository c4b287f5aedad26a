package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/testutil"
)

// No request of mallory's to the daemon lifts the administrator's limit, or limits another user.
func TestHostileCommands(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	h := newHostile(t, spare, "")
	mine, hers, roots := h.sleeper(h.mallory), h.sleeper(h.alice), h.sleeper(0)
	h.must("set", "--pid", mine.pid(), "--total", "2MB/s")
	if r := h.as(h.alice, "set", "--pid", hers.pid(), "--up", "4MB/s"); r.code != 0 {
		t.Fatal(r)
	}
	_, group := cgroup(t, "hostile")
	me := itoa(h.mallory)
	for name, args := range map[string][]string{
		"limit root's process":           {"set", "--pid", roots.pid(), "--up", "1B/s"},
		"limit another user's process":   {"set", "--pid", hers.pid(), "--up", "1B/s"},
		"limit another user":             {"set", "--user", itoa(h.alice), "--up", "1B/s"},
		"limit root":                     {"set", "--user", "0", "--up", "1B/s"},
		"limit the machine":              {"set", "--host", "--up", "1B/s"},
		"limit process 1":                {"set", "--pid", "1", "--up", "1B/s"},
		"limit a cgroup":                 {"set", "--cgroup", group, "--up", "1B/s"},
		"limit a unit":                   {"set", "--unit", "dbus", "--up", "1B/s"},
		"limit a container":              {"set", "--container", "web", "--up", "1B/s"},
		"lift another user's limit":      {"unset", "--pid", hers.pid()},
		"lift the administrator's":       {"unset", "--pid", mine.pid()},
		"lift it by a unit's name":       {"unset", "--unit", "dbus"},
		"a weight above all others":      {"set", "--user", me, "--weight", "10000"},
		"take everything down":           {"down"},
		"see another's process by rules": {"rules", "test", hers.pid()},
	} {
		h.attempt(t, name, func(h *hostile) { h.denied(h.as(h.mallory, args...)) })
	}
	for name, args := range map[string][]string{
		"a higher limit of one's own":  {"set", "--user", me, "--up", "9EB/s"},
		"a limit of 0":                 {"set", "--user", me, "--up", "0"},
		"a burst of a minute":          {"set", "--user", me, "--up", "8GB/s", "--burst", "60s"},
		"no input meter":               {"set", "--pid", mine.pid(), "--total", "1GB/s", "--input-meter=false"},
		"no loopback":                  {"set", "--user", me, "--up", "8GB/s", "--loopback=false"},
		"lift by the shell's command":  {"nlimit", "-p", mine.pid(), "-o", "unlimited"},
		"lift by the oldest command":   {mine.pid(), "0"},
		"lift one's own, many times":   {"unset", "--user", me},
		"a process that does not live": {"set", "--pid", itoa(zombie(t)), "--up", "1B/s"},
	} {
		h.attempt(t, name, func(h *hostile) {
			h.as(h.mallory, args...)
			n := h.nodes()["pid:"+mine.pid()]
			total := uint64(0)
			for _, l := range n.Limits {
				if l.Owner == "admin" {
					total = l.BytesPerSec
				}
			}
			if total != 2e6 || n.MeterOff {
				h.t.Errorf("the administrator's limit on the process became %+v", n)
			}
		})
	}
	h.attempt(t, "leave a limited cgroup by a scope", func(h *hostile) {
		dir, path := cgroup(h.t, "scope")
		h.must("set", "--cgroup", path, "--up", "1MB/s")
		defer h.must("unset", "--cgroup", path)
		x := h.script(options{uid: h.mallory, cgroup: dir}, netniceBinary, "run", "--scope", "--up", "9GB/s", "--", "/bin/sleep", "600")
		defer x.close()
		eventually(3*time.Second, func() bool { return !lives(x.cmd.Process.Pid) })
		if now, _ := os.ReadFile("/proc/" + x.pid() + "/cgroup"); lives(x.cmd.Process.Pid) && !strings.Contains(string(now), path) {
			h.t.Errorf("it lives on in %s", now)
		}
	})
	h.attempt(t, "signs that a terminal obeys in a name", func(h *hostile) {
		x := h.python(options{uid: h.mallory}, `
import ctypes
ctypes.CDLL(None).prctl(15, b"\x1b[2Jx\nlevel=x", 0, 0, 0)
say("ready")
wait()
`)
		defer x.close()
		x.read("ready")
		h.as(h.mallory, "set", "--pid", x.pid(), "--up", "1MB/s")
		r := h.netnice("ls")
		if metrics := h.netnice("metrics"); strings.Contains(r.out+metrics.out+h.d.log.String(), "\x1b") || strings.Contains(metrics.out+h.d.log.String(), "\nlevel=x") {
			h.t.Errorf("they are printed as they are: %v", r)
		}
	})
	h.attempt(t, "another user's limit is as it was", func(h *hostile) {
		n := h.nodes()["pid:"+hers.pid()]
		if len(n.Limits) != 1 || n.Limits[0].BytesPerSec != 4e6 {
			h.t.Errorf("%+v", n)
		}
	})
}

// Apart from the daemon's socket, mallory tries to reach the daemon through the kernel and through files.
func TestHostileReach(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	h := newHostile(t, spare, "")
	pid := h.d.cmd.Process.Pid
	var errs map[string]string
	h.program(&errs, `
import ctypes, glob
libc = ctypes.CDLL(None, use_errno=True)
daemon = int(sys.argv[1])
answers = {}

def note(name, f):
    try:
        answers[name] = repr(f())
    except OSError as e:
        answers[name] = errno.errorcode[e.errno]

def call(f, *args):
    ctypes.set_errno(0)
    if f(*args) == -1:
        raise OSError(ctypes.get_errno(), "")
    return "done"

note("kill the daemon", lambda: os.kill(daemon, signal.SIGKILL))
note("trace the daemon", lambda: call(libc.ptrace, 16, daemon, None, None))
note("take a descriptor of the daemon's", lambda: call(libc.syscall, 438, libc.syscall(434, daemon, 0), 3, 0))
note("write its memory", lambda: open(f"/proc/{daemon}/mem", "r+b"))
attr = (ctypes.c_uint32 * 32)(1)
note("open a map by its number", lambda: call(libc.syscall, 321, 14, attr, 128))
path = ctypes.create_string_buffer(b"/sys/fs/bpf/netnice/nodes")
get = (ctypes.c_uint64 * 16)(ctypes.addressof(path))
note("open a pinned map", lambda: call(libc.syscall, 321, 7, get, 128))
note("list the pins", lambda: os.listdir("/sys/fs/bpf/netnice"))
note("read the state", lambda: open("/var/lib/netnice/state.json"))
note("write the state", lambda: open("/var/lib/netnice/state.json", "a"))
note("put a state in its place", lambda: os.symlink("/tmp/state", "/var/lib/netnice/state.json.new"))
note("remove the socket", lambda: os.unlink(SOCKET))
note("listen in its place", lambda: socket.socket(socket.AF_UNIX).bind("/run/netnice/other.sock"))
note("hold the lock", lambda: open("/run/netnice/netnice.lock", "w"))
note("move to another cgroup", lambda: open(sys.argv[2] + "/cgroup.procs", "w").write(str(os.getpid())))
note("lower the daemon's priority", lambda: os.setpriority(os.PRIO_PROCESS, daemon, 19))
note("bound the daemon's files", lambda: call(libc.prlimit, daemon, 7, (ctypes.c_uint64 * 2)(3, 3), None))
say("answer", json.dumps(answers))
`, itoa(pid), cgroupMount())
	if len(errs) != 16 {
		t.Errorf("%d attempts: %v", len(errs), errs)
	}
	for name, got := range errs {
		h.attempt(t, name, func(h *hostile) {
			switch got {
			case "EPERM", "EACCES", "EBADF", "EINVAL": // pidfd_getfd of no descriptor, or no system call of that number
			default:
				h.t.Errorf("it is answered by %s", got)
			}
		})
	}
	h.attempt(t, "be root in a user namespace", func(h *hostile) {
		r := h.run(h.under(h.mallory, h.command("set", "--host", "--up", "1B/s")), nil)
		h.denied(r)
		cmd := h.command()
		cmd.Path, cmd.Args = "/usr/bin/unshare", []string{"unshare", "--user", "--map-root-user", "--net", netniceBinary, "set", "--host", "--up", "1B/s"}
		h.denied(h.run(h.under(h.mallory, cmd), nil))
		if _, there := h.nodes()["host"]; there {
			h.t.Error("the machine is limited")
		}
	})
	h.attempt(t, "a connection of alice's, passed on", func(h *hostile) {
		// The connection's owner was settled when alice made it. To pass it on is her right, and it permits no more
		// than she might do herself.
		x := h.python(options{uid: h.alice}, asks+`
s = link()
os.set_inheritable(s.fileno(), True)
say("fd", s.fileno())
s.sendall(request("PUT", "/v1/limits", up("user", sys.argv[1], 1)))
say("answer", s.recv(1 << 16).split()[1].decode())
`, itoa(h.mallory))
		x.read("fd")
		if got := x.read("answer"); got != "403" {
			h.t.Errorf("answered by %s", got)
		}
	})
}

// The test sends malformed requests and requests that are too large.
func TestHostileRequests(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestRequests and internal/apiserver TestBadCalls")
	t.Parallel()
	spare := newUsers()
	h := newHostile(t, spare, "")
	var got map[string]int
	before := h.usage()
	h.program(&got, `
def put(text):
    return raw(request("PUT", "/v1/limits", text if isinstance(text, bytes) else text.encode()))[0]

me = '{"subject":{"kind":"user","id":"%s"},"wish":{%%s}}' % sys.argv[1]
huge = "9" * 400
answers = {
    "no JSON": put("{"), "two objects": put(me % '"up_bytes_per_sec":1' + "{}"),
    "an unknown key": put('{"surprise":1}'), "deep": put("[" * 60000), "deep in a key": put('{"subject":' + '{"a":' * 10000),
    "not UTF-8": put(b'{"subject":{"kind":"pid","id":"\xff\xfe"},"wish":{"up_bytes_per_sec":1}}'),
    "a negative rate": put(me % '"up_bytes_per_sec":-1'), "a rate of 2^64": put(me % '"up_bytes_per_sec":18446744073709551616'),
    "400 digits": put(me % f'"up_bytes_per_sec":{huge}'), "a fraction": put(me % '"up_bytes_per_sec":0.5'),
    "an endless burst": put(me % '"up_bytes_per_sec":1,"burst_ns":18446744073709551615'),
    "a weight of 2^32": put(me % '"weight":4294967296'), "a text for a number": put(me % '"up_bytes_per_sec":"1"'),
    "nothing wanted": put(me % ""), "a huge body": put(b" " * (1 << 20)), "a long name": put('{"subject":{"kind":"user","id":"%s"},"wish":{"up_bytes_per_sec":1}}' % ("x" * 60000)),
    "a path upwards": put('{"subject":{"kind":"cgroup","id":"/../../etc"},"wish":{"up_bytes_per_sec":1}}'),
    "a pid of 400 digits": put('{"subject":{"kind":"pid","id":"%s"},"wish":{"up_bytes_per_sec":1}}' % huge),
    "a negative pid": put('{"subject":{"kind":"pid","id":"-1"},"wish":{"up_bytes_per_sec":1}}'),
    "zeros in a name": put('{"subject":{"kind":"user","id":"0\\u0000"},"wish":{"up_bytes_per_sec":1}}'),
    "no HTTP": raw(b"\x16\x03\x01" + bytes(1000))[0], "a header of 1 MB": raw(b"GET /v1/status HTTP/1.1\r\nX: " + b"x" * (1 << 20))[0],
    "two lengths": raw(b"PUT /v1/limits HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}")[0],
    "another method": ask("BREW", "/v1/limits")[0], "another path": ask("GET", "/../../etc/passwd")[0],
}
say("answer", json.dumps(answers))
`, itoa(h.mallory))
	for name, status := range got {
		h.attempt(t, name, func(h *hostile) {
			if status != 0 && (status < 300 || status >= 500) {
				h.t.Errorf("answered by %d", status)
			}
		})
	}
	if len(got) != 25 {
		t.Errorf("%d attempts, want 25", len(got))
	}
	h.bounded(before)
	if n := h.nodes()["user:"+h.name()]; len(n.Limits) != 1 {
		t.Errorf("mallory has set something: %+v", n)
	}
}

// The test has rule files that lead to other files, or cost too much.
func TestHostileRules(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/rules TestUsersOwnFile, TestUsersOwnFileIsBounded, TestParse")
	t.Parallel()
	spare := newUsers()
	const both = 1e6
	scp := fmt.Sprintf("nnh%d", os.Getpid()%100000)
	rule := fmt.Sprintf("[[rule]]\nname = 'slow'\nprogram = '%s'\nuser = [%d, %d]\nup = '1MB/s'\n", scp, spare+30, spare+31)
	h := newHostile(t, spare, rule)
	slow, free := copyAs(t, scp), copyAs(t, scp+"free")
	file := filepath.Join(h.home, ".config/netnice/netnice.toml")
	secret := filepath.Join(h.dir, "secret")
	if err := os.WriteFile(secret, []byte("hush = 'hush'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(h *hostile, how string, args ...string) result {
		h.t.Helper()
		text := "import os, sys, shutil\np = sys.argv[1]\nd = os.path.dirname(p)\nos.unlink(d) if os.path.islink(d) else shutil.rmtree(d, ignore_errors=True)\nos.makedirs(os.path.dirname(p))\n" + how + "\nsay('done')"
		x := h.python(options{uid: h.mallory}, text, append([]string{file}, args...)...)
		defer x.close()
		x.read("done")
		return h.as(h.mallory, "rules", "reload")
	}
	for name, text := range map[string]string{
		"a link to a secret":           "os.symlink(sys.argv[2], p)",
		"a folder that is a link":      "os.rmdir(os.path.dirname(p)); os.symlink(os.path.dirname(sys.argv[2]), os.path.dirname(p))",
		"a pipe":                       "os.mkfifo(p)",
		"a sparse file of 1 TB":        "open(p, 'w').truncate(1 << 40)",
		"a million rules":              "open(p, 'w').write(\"[[rule]]\\nprogram='x'\\nup='1MB/s'\\n\" * 30000)",
		"a file that all may write":    "open(p, 'w').write(\"[[rule]]\\nprogram='x'\\nup='1MB/s'\\n\"); os.chmod(p, 0o666)",
		"a weight above all":           "open(p, 'w').write(\"[[rule]]\\nprogram='x'\\nweight=10000\\n\")",
		"a rule for another user":      "open(p, 'w').write(\"[[rule]]\\nprogram='x'\\nuser='root'\\nup='1B/s'\\n\")",
		"a pattern of 60 kB":           "open(p, 'w').write(\"[[rule]]\\ncommand='\" + '*?' * 30000 + \"'\\nup='1MB/s'\\n\")",
		"brackets without end":         "open(p, 'w').write('a=' + '[' * 60000)",
		"a name that a terminal obeys": "open(p, 'w').write(\"[[rule]]\\nname=\\\"\\\\u001b[2J\\\"\\nprogram='x'\\nup='1MB/s'\\n\")",
	} {
		h.attempt(t, name, func(h *hostile) {
			before := h.usage()
			r := write(h, text, secret)
			if r.code != 1 || strings.Contains(r.out+r.err, "hush") || strings.Contains(r.out+r.err, "\x1b") {
				h.t.Errorf("want exit code 1, and no word of what is not theirs: %v", r)
			}
			time.Sleep(100 * time.Millisecond)
			if now := h.usage(); now.rss > mostRSS || now.cpu-before.cpu > 2*time.Second {
				h.t.Errorf("it cost %v and %d MB", now.cpu-before.cpu, now.rss>>20)
			}
		})
	}
	h.attempt(t, "leave a rule by a rule of one's own", func(h *hostile) {
		port := h.ports + 1
		if r := write(h, "open(p, 'w').write(\"[[rule]]\\nprogram='"+scp+"free'\\nup='8GB/s'\\nalso=true\\n\")"); r.code != 0 {
			h.t.Fatal(r)
		}
		x := h.script(options{in: h.A, uid: h.mallory}, slow, agentName, agentExec, free, agentName, agentFlood, h.to(port))
		defer x.close()
		if !eventually(5*time.Second, func() bool { n := h.nodes()["pid:"+x.pid()]; return adminsUp(n) == both }) {
			h.t.Errorf("the administrator's rule does not hold: %+v", h.nodes()["pid:"+x.pid()])
		}
		x.tell("go")
		own := func() bool {
			for _, l := range h.nodes()["pid:"+x.pid()].Limits {
				if l.Owner != "admin" && l.Rule != nil {
					return true
				}
			}
			return false
		}
		if !eventually(5*time.Second, own) {
			h.t.Error("mallory's rule does not match: there is no attempt")
		}
		if n := h.nodes()["pid:"+x.pid()]; adminsUp(n) != both {
			h.t.Errorf("the administrator's rule was left: %+v", n)
		}
		if got := h.sent(time.Second, both, port); got > 1.06 {
			h.t.Errorf("%.2f of the rule's limit", got)
		}
	})
	h.attempt(t, "more programs than there may be limits", func(h *hostile) {
		const many = auth.MaxRuledPerUser + 40
		x := h.script(options{in: h.A, uid: h.mallory}, "/bin/sh", "-c", fmt.Sprintf(
			"i=0; while [ $i -lt %d ]; do %s 600 & i=$((i+1)); done; echo started; wait", many, copyFrom(h.t, "/bin/sleep", scp)))
		defer x.close()
		x.read("started")
		limited := func() (n int) {
			for subject, node := range h.nodes() {
				if strings.HasPrefix(subject, "rule:") {
					n += node.Processes
				} else if node.UID == h.mallory && strings.HasPrefix(subject, "pid:") {
					n++
				}
			}
			return n
		}
		if !eventually(30*time.Second, func() bool { return limited() >= many }) {
			h.t.Errorf("%d of %d are limited", limited(), many)
		}
		if n := len(h.nodes()); n > auth.MaxRuledPerUser+20 {
			h.t.Errorf("%d limits", n)
		}
		port := h.ports + 2
		y := h.script(options{in: h.A, uid: h.mallory}, slow, agentName, agentFlood, h.to(port))
		defer y.close()
		time.Sleep(time.Second)
		if got := h.sent(time.Second, both, port); got > 1.06 {
			h.t.Errorf("one more program sends %.2f of the limit", got)
		}
	})
}
