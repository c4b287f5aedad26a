package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// flooding2 is the head of mallory's programs that flood the daemon. It calls f in a number of processes for a
// number of seconds, and prints "answer" with the sum of the results.
const flooding2 = asks + `
link.__defaults__ = (1,) # whoever waits for their share has no answer

def crowd(n, seconds, f):
    say("going")
    end = time.monotonic() + seconds
    ends = []
    for _ in range(n):
        a, b = os.pipe()
        if os.fork() == 0:
            got = {}
            try:
                while time.monotonic() < end:
                    for key, count in f().items():
                        got[key] = got.get(key, 0) + count
            finally:
                os.write(b, json.dumps(got).encode())
                os._exit(0)
        os.close(b)
        ends.append(a)
    total = {}
    for a in ends:
        for key, count in json.loads(os.read(a, 1 << 16) or "{}").items():
            total[key] = total.get(key, 0) + count
    say("answer", json.dumps(total))

def counted(status):
    return {str(status): 1}
`

// Mallory floods the daemon, and its programs in the kernel, in many ways. Alice's limit holds meanwhile, the daemon
// serves her and root, and it uses little.
func TestHostileFloods(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGenerated and internal/daemon TestRequests; floods of requests are tested here only")
	// Not parallel: it floods the machine.
	spare := newUsers()
	rule := fmt.Sprintf("nnf%d", os.Getpid()%100000)
	h := newHostile(t, spare, fmt.Sprintf("[[rule]]\nname = 'hers'\nprogram = '%s'\nuser = %d\nup = '2MB/s'\n", rule, spare+31))
	const limit = 2e6
	hers := h.ports + 1
	h.python(options{in: h.A, uid: h.alice}, "flood(connect(sys.argv[1]))", h.to(hers))
	h.must("set", "--user", itoa(h.alice), "--up", "2MB/s")
	h.begins(hers)
	port := h.ports + 2
	for _, f := range []struct {
		name, text string
		answered   func(h *hostile, got map[string]int)
	}{
		{name: "requests", text: `crowd(8, 2, lambda: counted(ask("GET", "/v1/nodes")[0]))`, answered: func(h *hostile, got map[string]int) {
			if got["200"] > auth.RequestsAtOnce+5*auth.RequestsPerSec || got["200"] < auth.RequestsAtOnce/2 {
				h.t.Errorf("answered: %v", got)
			}
		}},
		{name: "wishes", text: `crowd(8, 1.2, lambda: counted(ask("PUT", "/v1/limits", up("user", str(os.getuid()), random.randrange(1, 1 << 40)))[0]))`},
		{name: "rules read again", text: `crowd(8, 1.2, lambda: counted(ask("POST", "/v1/rules/reload")[0]))`},
		{name: "containers looked for", text: `crowd(8, 1.2, lambda: counted(ask("GET", "/v1/nodes?subject=container:web")[0]))`},
		{name: "connections", text: `
kept = []
def more():
    try:
        kept.append(link(2))
        kept[-1].setblocking(False)
        return {"open": 1}
    except OSError:
        return {"refused": 1}
crowd(4, 1.2, lambda: more() if len(kept) < 900 else {"": 1})`},
		{name: "requests that never end", text: `
def half():
    try:
        s = link()
        s.sendall(b"PUT /v1/limits HTTP/1.1\r\nHost: n\r\nContent-Length: 60000\r\n\r\n{")
        time.sleep(1)
        return {"sent": 1}
    except OSError:
        return {"refused": 1}
crowd(100, 1.2, half)`},
		{name: "answers that are not read", text: `
def deaf():
    s = link()
    try:
        for _ in range(200):
            s.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: n\r\n\r\n")
        time.sleep(1)
    except OSError:
        pass
    return {"sent": 1}
crowd(30, 1.2, deaf)`},
		{name: "processes that end as they are limited", text: `
def race():
    pid = os.fork()
    if pid == 0:
        if random.random() < 0.5:
            os.execv("/bin/true", ["true"])
        os._exit(0)
    status = ask("PUT", "/v1/limits", up("pid", str(pid), 1))[0]
    os.waitpid(pid, 0)
    again = ask("PUT", "/v1/limits", up("pid", str(pid), 1))[0]
    return {str(status): 1, "after": status == 404 and again == 200}
crowd(4, 1.2, race)`, answered: func(h *hostile, got map[string]int) {
			if got["after"] != 0 {
				h.t.Errorf("processes that had ended were limited: %v", got)
			}
		}},
		{name: "sockets with rates of their own", text: `
def rate():
    s = socket.socket()
    try:
        s.setsockopt(6, 7001, struct.pack("Q", random.randrange(1, 1 << 40)))
    except OSError:
        return {"refused": 1}
    return {"set": 1}
crowd(4, 1.2, rate)`},
		{name: "questions by a socket option", text: `
def ask_kernel():
    s = socket.socket()
    try:
        s.setsockopt(6, 7005, struct.pack("IIIIQ", 4, 0, 0, 0, random.randrange(1, 1 << 40)))
    except BlockingIOError:
        return {"refused": 1}
    return {"asked": 1}
crowd(4, 1.2, ask_kernel)`, answered: func(h *hostile, got map[string]int) {
			if got["asked"] < 64 || got["asked"] > 64+2*50 || got["refused"] == 0 { // 1.2 s, and the time to start
				h.t.Errorf("asked: %v", got)
			}
		}},
		{name: "programs without end", text: `
def storm():
    if os.fork() == 0:
        os.execv("/bin/true", ["true"])
    os.wait()
    return {"run": 1}
crowd(4, 1.2, storm)`},
		{name: "programs that send and end", text: `
def storm():
    if os.fork() == 0:
        s = connect(sys.argv[1])
        s.send(b"x" * 100)
        os._exit(0)
    os.wait()
    return {"run": 1}
crowd(4, 1.2, storm)`},
		{name: "datagrams", text: `
s = socket.socket(type=socket.SOCK_DGRAM)
host, port = sys.argv[1].rsplit(":", 1)
def send():
    for _ in range(100):
        s.sendto(bytes(1200), (host, int(port)))
    return {"sent": 100}
crowd(2, 1.2, send)`},
	} {
		h.attempt(t, f.name, func(h *hostile) {
			before := h.usage()
			x := h.python(options{in: h.A, uid: h.mallory}, "import random\n"+flooding2+f.text, h.to(port))
			defer x.close()
			x.read("going")
			time.Sleep(200 * time.Millisecond)
			begin := testbed.Now()
			if r := h.as(h.alice, "set", "--user", itoa(h.alice), "--up", "5GB/s"); r.code != 0 {
				h.t.Errorf("alice is not served: %v", r)
			}
			if took := testbed.Now().Sub(begin); took > 2*time.Second && !excused(h.t, begin, testbed.Now()) {
				h.t.Errorf("alice is served after %v", took)
			}
			from := testbed.Now()
			got := h.rate(from, from.Add(600*time.Millisecond), hers) / limit
			h.t.Logf("alice sends %.3f of her limit", got)
			if got > 1.05 || got < 0.9 && !excused(h.t, from, testbed.Now()) {
				h.t.Errorf("alice sends %.3f of her limit", got)
			}
			answer := map[string]int{}
			h.jsonOf(x.read("answer"), &answer)
			h.t.Logf("%v", answer)
			if f.answered != nil {
				f.answered(h, answer)
			}
			h.bounded(before)
		})
	}
	h.attempt(t, "a rule for alice beside a storm of programs", func(h *hostile) {
		x := h.python(options{uid: h.mallory}, "import random\n"+flooding2+`
def storm():
    if os.fork() == 0:
        os.execv("/bin/true", ["true"])
    os.wait()
    return {"run": 1}
crowd(4, 3, storm)`)
		defer x.close()
		x.read("going")
		y := h.script(options{uid: h.alice}, copyFrom(h.t, "/bin/sleep", rule), "600")
		defer y.close()
		h.assertWithin("her rule holds", 1500*time.Millisecond, func() bool { return adminsUp(h.nodes()["pid:"+y.pid()]) == limit })
	})
	h.attempt(t, "more limits than there may be", func(h *hostile) {
		var got map[string]int
		h.program(&got, `
pids = []
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(60)
        os._exit(0)
    pids.append(pid)
got = {}
for pid in pids:
    status, body = ask("PUT", "/v1/limits", up("pid", str(pid), 1000))
    if status == 409:
        status = "409 " + ("hint" if json.loads(body).get("hint") else "")
    got[str(status)] = got.get(str(status), 0) + 1
for pid in pids:
    os.kill(pid, 9)
say("answer", json.dumps(got))
`)
		h.t.Logf("%v", got)
		// The flood of requests has put one limit on mallory herself already.
		if n := got["200"]; n > auth.MaxNodesPerUser || n < auth.MaxNodesPerUser-2 || got["409 hint"] == 0 {
			h.t.Errorf("answered: %v", got)
		}
		if r := h.as(h.alice, "set", "--pid", h.sleeper(h.alice).pid(), "--up", "1MB/s"); r.code != 0 {
			h.t.Errorf("alice has no room: %v", r)
		}
	})
	h.attempt(t, "network namespaces without end", func(h *hostile) {
		h.must("set", "--user", itoa(h.mallory), "--down", "1MB/s")
		defer h.must("set", "--user", itoa(h.mallory), "--down", "0")
		before := h.usage()
		x := h.python(options{uid: h.mallory}, libc+fmt.Sprintf(`
for _ in range(%d):
    if os.fork() == 0:
        call(libc.unshare, NEWUSER | NEWNET)
        s = socket.create_server(("", 0))
        u = socket.socket(type=socket.SOCK_DGRAM)
        u.bind(("", 0))
        time.sleep(600)
go()
time.sleep(600)
`, enforce.MostNamespaces+20))
		defer x.close()
		x.read("going")
		if !eventually(20*time.Second, func() bool { return h.status().Counters["namespace_refused"] >= 20 }) {
			h.t.Errorf("counted: %v", h.status().Counters)
		}
		h.bounded(before)
	})
	h.attempt(t, "what is left", func(h *hostile) {
		ended := func() bool {
			for subject, n := range h.nodes() {
				if strings.HasPrefix(subject, "pid:") && n.UID == h.mallory {
					return false
				}
			}
			return true
		}
		if !eventually(10*time.Second, ended) {
			h.t.Errorf("limits of processes that have ended: %d nodes", len(h.nodes()))
		}
		// The daemon tidies up the queues of these namespaces for up to a second.
		var took time.Duration
		var now usage
		for range 5 {
			before := h.usage()
			time.Sleep(time.Second)
			now = h.usage()
			if took = now.cpu - before.cpu; took <= 100*time.Millisecond {
				break
			}
		}
		if took > 100*time.Millisecond || now.rss > mostRSS {
			h.t.Errorf("at rest the daemon uses %v a second, and has %d MB", took, now.rss>>20)
		}
	})
}
