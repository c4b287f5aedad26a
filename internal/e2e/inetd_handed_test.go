package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// handing opens the sockets that systemd would open, and becomes inetd. inetd could not open the same addresses
// itself.
const handing = `
import fcntl
tcp = socket.create_server(("0.0.0.0", 7001))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", 7002))
held = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 100) for s in (tcp, udp)]
os.closerange(3, 100)
for fd, h in zip((3, 4), held):
    os.dup2(h, fd)
    os.close(h)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="a:b")
os.execv(sys.argv[1], sys.argv[1:])
`

// A service manager has opened sockets. The service with the type and port of a socket serves it. Sessions inherit
// neither these sockets nor the variables that name them.
func TestInetdHandedSockets(t *testing.T) {
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	dir, err := os.MkdirTemp(work, "handed")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"conf":   "7001 stream tcp4 nowait root DIR/served\n7002 dgram udp4 wait root DIR/dgram\n",
		"served": "#!/bin/sh\necho listen $(env | grep -c LISTEN_) sockets $(ls -l /proc/$$/fd | grep -c socket:)\n",
		"dgram":  "#!/usr/bin/python3\nimport socket\ns = socket.socket(fileno=0)\ndata, to = s.recvfrom(1000)\ns.sendto(b'got ' + data, to)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inetd := f.python(options{in: f.A}, handing, netniceBinary, "inetd", filepath.Join(dir, "conf"))
	f.assertWithin("inetd serves", 5*time.Second, func() bool { return strings.Contains(inetd.wrong.String(), "serving") })
	asking := f.python(options{in: f.B}, `
for i in range(2):
    with connect(sys.argv[1] + ":7001") as s:
        s.settimeout(10)
        say("tcp", s.makefile().read().strip())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(10)
u.sendto(b"it", (sys.argv[1], 7002))
say("udp", u.recv(100).decode())
`, f.A4.String())
	for range 2 {
		// Standard input, output and error are the connection.
		if got := asking.read("tcp"); got != "listen 0 sockets 3" {
			t.Errorf("a session has %q", got)
		}
	}
	if got := asking.read("udp"); got != "got it" {
		t.Errorf("a datagram is answered by %q", got)
	}
}
