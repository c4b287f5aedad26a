package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// No change of the processes of a tree leads out of the tree.
func TestEvadeByProcesses(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestForksWhileLimitIsSet and TestGenerated")
	testutil.RequireRoot(t)
	spare := newUsers()
	other, err := testbed.NewNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	// The user has a cgroup of its own, with two in it.
	owner, delegated := spare+7, ""
	if os.Getuid() == 0 {
		delegated, _ = cgroup(t, "evade")
	}
	one, two := filepath.Join(delegated, "1"), filepath.Join(delegated, "2")
	if os.Getuid() == 0 {
		for _, dir := range []string{one, two} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(dir) }) // cgroup reports one that is left
		}
		for _, file := range []string{delegated, one, two} {
			if err := os.Chown(filepath.Join(file, "cgroup.procs"), int(owner), int(owner)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const unshare = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result:
        raise OSError(ctypes.get_errno(), "namespace")
`
	evade(t, nil, []escape{
		{name: "fork for each connection", least: 0.1, ahead: evadeForgotten, text: `
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def child():
    with socket.create_connection(there) as s:
        s.sendall(bytes(4000))
def some():
    while True:
        if os.fork() == 0:
            try:
                child()
            finally:
                os._exit(0)
        time.sleep(0.0005)
ready()
processes(2, some)
`},
		{name: "fork for each piece", least: 0.5, text: `
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
conns = [socket.create_connection(there) for _ in range(8)]
ready()
def some():
    for i in range(1 << 30):
        if os.fork() == 0:
            try:
                conns[i % 8].sendall(bytes(20_000))
            finally:
                os._exit(0)
        time.sleep(0.001)
processes(2, some)
`},
		{name: "each process ends after its child's birth", text: `
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ready()
def hop():
    s = socket.create_connection(there)
    while True:
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            s.send(bytes(20_000))
        if os.fork():
            os._exit(0)
processes(4, hop)
`},
		{name: "exec, again and again", text: `
again = r"""
import os, socket, sys, time
s = socket.socket(fileno=int(sys.argv[1]))
end = time.monotonic() + 0.05
while time.monotonic() < end:
    s.send(bytes(1 << 16))
os.execv(sys.executable, [sys.executable, "-ISc", sys.argv[2], str(s.detach()), sys.argv[2]])
"""
ready()
def some():
    s = socket.create_connection(there)
    os.set_inheritable(s.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-ISc", again, str(s.fileno()), again])
processes(3, some)
`},
		{name: "setuid", privileged: "it changes its user", text: `
ready()
def some():
    uid = int(sys.argv[3]) + os.getpid() % 1000
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    flood(socket.create_connection(there))
processes(4, some)
`, args: []string{itoa(spare)}},
		{name: "setsid and double fork", text: `
ready()
def some():
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.alarm(4)  # nobody else ends it
    flood(socket.create_connection(there))
processes(4, some)
`},
		{name: "cgroup, again and again", uid: owner, cgroup: one, text: `
ready()
def some():
    s = socket.create_connection(there)
    while True:
        for folder in sys.argv[3:]:
            with open(folder + "/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            for _ in range(10):
                s.send(bytes(5000))
processes(4, some)
`, args: []string{one, two}},
		{name: "network namespaces", privileged: "it comes back to the machine's", text: unshare + `
ready()
def some():
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    check(libc.unshare(0x40000000))  # CLONE_NEWNET
    check(libc.setns(here, 0x40000000))
    flood(socket.create_connection(there))
processes(4, some)
`},
		{name: "another's network namespace", privileged: "it enters one that it has not made", text: unshare + `
here = os.open("/proc/self/ns/net", os.O_RDONLY)
check(libc.setns(os.open(sys.argv[3], os.O_RDONLY), 0x40000000))
ready()
def some():
    check(libc.setns(here, 0x40000000))
    flood(socket.create_connection(there))
processes(4, some)
`, args: []string{other.Path()}},
		// The sockets stay in the namespace in which they were made.
		{name: "a network namespace of its own, with sockets from before", text: unshare + `
ss = [socket.socket() for _ in range(4)]
ready()
def some():
    check(libc.unshare(0x10000000 | 0x40000000))  # CLONE_NEWUSER, CLONE_NEWNET
    s = ss[0]
    s.connect(there)
    flood(s)
for s in ss:
    if os.fork() == 0:
        ss = [s]
        some()
signal.pause()
`},
		{name: "user and pid namespaces", text: unshare + `
ready()
def some():
    check(libc.unshare(0x10000000 | 0x20000000))  # CLONE_NEWUSER, CLONE_NEWPID
    if os.fork() == 0:
        flood(socket.create_connection(there))
    signal.pause()
processes(4, some)
`},
		{name: "threads that come and go", text: `
ready()
conns = [socket.create_connection(there) for _ in range(8)]
def piece(s):
    s.sendall(bytes(8000))
while True:
    some = [threading.Thread(target=piece, args=(s,)) for s in conns]
    for thread in some:
        thread.start()
    for thread in some:
        thread.join()
`},
	})
}
