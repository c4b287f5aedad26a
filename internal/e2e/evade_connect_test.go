package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// New connections begin in every rhythm: none leads the limit by a noticeable amount.
func TestEvadeByConnections(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestShortConnections and TestForgottenConnections")
	evade(t, func(f *field) {
		for key, value := range map[string]string{"A": "0x5", "B": "0x602"} {
			ns := f.A
			if key == "B" {
				ns = f.B
			}
			if err := ns.Sysctl("net/ipv4/tcp_fastopen", value); err != nil {
				t.Fatal(err)
			}
		}
	}, []escape{
		{name: "one segment each", least: 0.1, ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.send(bytes(1000))
threads(8, one)
`},
		{name: "8 with 13 KB", ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.sendall(bytes(13000))
threads(8, one)
`},
		{name: "64 with 100 KB", ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.sendall(bytes(100_000))
threads(64, one)
`},
		{name: "closed with queued data", ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        s.setblocking(False)
        s.send(bytes(1 << 20))
    time.sleep(0.1)
threads(8, one)
`},
		{name: "shut down with queued data", ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        s.sendall(bytes(400_000))
        s.shutdown(socket.SHUT_WR)
        s.recv(1)
threads(8, one)
`},
		{name: "reset after a first window", least: 0.1, ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.send(bytes(14000))
threads(16, one)
`},
		{name: "lingering", ahead: evadeForgotten, text: `
ready()
def one():
    with socket.create_connection(there) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
        s.sendall(bytes(50_000))
threads(16, one)
`},
		{name: "fast open", least: 0.1, ahead: evadeForgotten, text: `
ready()
def one():
    with socket.socket() as s:
        s.sendto(bytes(1400), socket.MSG_FASTOPEN, there)
threads(8, one)
`},
		{name: "fast open, never finished", least: 0.1, ahead: evadeForgotten, text: `
ready()
def one():
    with socket.socket() as s:
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            s.sendto(bytes(1400), socket.MSG_FASTOPEN, there)
        except BlockingIOError:
            pass
threads(4, one)
`},
		{name: "refused connections", least: 0.01, text: `
ready()
def one():
    with socket.socket() as s:
        s.connect((there[0], 9))  # where nobody listens
threads(8, one)
`},
	})
}
