package e2e

import (
	"fmt"
	"testing"
	"time"
)

// Data that servers send on accepted connections are charged to the servers.
func TestEvadeByServers(t *testing.T) {
	// The worker has a limit, but the process that made the listener and also holds it has none.
	worker := func(backlog, bytes int) string {
		return fmt.Sprintf(`
listener = socket.create_server(("", 8080), backlog=%d)
child = os.fork()
if child == 0:
    def serve():
        s, _ = listener.accept()
        with s:
            s.sendall(bytes(%d))
    threads(8, serve)
ready(child)
signal.pause()
`, backlog, bytes)
	}
	evade(t, nil, []escape{
		{name: "SO_REUSEPORT", against: readsAll, text: `
def serve():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for the next attempts
    listener.bind(("", 8080))
    listener.listen()
    while True:
        s, _ = listener.accept()
        threading.Thread(target=flood, args=(s,), daemon=True).start()
ready()
processes(4, serve)
`},
		{name: "a listener from before the limit", against: readsAll, text: `
listener = socket.create_server(("", 8080))
ready()
def serve():
    while True:
        s, _ = listener.accept()
        with s:
            s.sendall(bytes(100_000))
processes(4, serve)
`},
		{name: "another's listener", against: readsAll, text: worker(128, 100_000)},
		{name: "another's listener, a packet each", against: readsAll, least: 0.3, ahead: evadeEarly, text: worker(500, 1400)},
		{name: "MPTCP", against: readsAll, text: mptcpServer},
	})
}

// Data that a limited process sends by another's connections are charged to it, also while only that one has them open.
// A limit on what is received has the daemon look for processes that only read.
func TestEvadeByOthersConnections(t *testing.T) {
	evade(t, func(f *field) {
		user := fmt.Sprint(newUsers())
		f.must("set", "--user", user, "--down", "1MB/s")
		f.t.Cleanup(func() { f.netnice("unset", "--user", user) })
	}, []escape{
		{name: "TCP", text: fmt.Sprintf(closedWithData, 0)},
		// Each connection sends its first segments before the daemon has armed it.
		{name: "MPTCP", ahead: time.Second, text: fmt.Sprintf(closedWithData, 262)},
	})
}

// closedWithData is a process whose parent, which has no limit, keeps connections of a protocol open. The process closes its
// copies of them while they have data.
const closedWithData = `
import ctypes
made = [socket.socket(socket.AF_INET, socket.SOCK_STREAM, %d) for _ in range(60)]
for s in made:
    s.connect(there)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
child = os.fork()
if child:
    ready(child)
    signal.pause()
SYS_pidfd_getfd = 438
parent, libc = os.pidfd_open(os.getppid()), ctypes.CDLL(None)
numbers = [s.fileno() for s in made]
for s in made:
    s.close()
while True:
    for number in numbers:
        with socket.socket(fileno=libc.syscall(SYS_pidfd_getfd, parent, number, 0)) as s:
            s.setblocking(False)
            try:
                s.send(bytes(1 << 20))
            except OSError:
                pass
        time.sleep(0.002)
`

// mptcpServer floods every MPTCP connection that it accepts.
const mptcpServer = `
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("", 8080))
listener.listen()
ready()
while True:
    s, _ = listener.accept()
    threading.Thread(target=flood, args=(s,), daemon=True).start()
`
