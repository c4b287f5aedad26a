package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A user has a second account without a limit, and passes a connection to a process of it. Traffic counts for the
// account that sends it. The limited account gains nothing if another account holds the connection or has sent on
// it.
func TestEvadeBySecondAccount(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDescriptorPassing and TestUserLimitsOwnProcess")
	for name, connects := range map[string]string{
		"TCP": `s = connect(sys.argv[1])`,
		"MPTCP": `
host, port = sys.argv[1].rsplit(":", 1)
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.connect((host, int(port)))
`,
	} {
		t.Run(name, func(t *testing.T) { evadeBySecondAccount(t, connects) })
	}
}

func evadeBySecondAccount(t *testing.T, connects string) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	a, name := f.ports+1, testutil.RunName()+"account"
	f.must("set", "--user", itoa(spare+31), "--up", "3MB/s")
	limited := f.python(options{in: f.A, uid: spare + 31}, connects+`
u = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
u.bind("\0" + sys.argv[2])
u.listen()
say("ready")
c, _ = u.accept()
socket.send_fds(c, [b"x"], [s.fileno()])
say("passed")
stop = False
def floods():
    while not stop:
        s.send(bytes(65536))
while wait():
    stop = False
    t = threading.Thread(target=floods, daemon=True)
    t.start()
    say("floods")
    wait()
    stop = True
    t.join()
    say("rests")
`, f.to(a), name)
	limited.read("ready")
	second := f.python(options{in: f.A, uid: spare + 32}, `
u = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
u.connect("\0" + sys.argv[1])
_, fds, _, _ = socket.recv_fds(u, 1, 1)
s = socket.socket(fileno=fds[0])
say("has")
while wait():
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        s.send(bytes(65536))
        time.sleep(0.002)
    say("sent")
`, name)
	limited.read("passed")
	second.read("has")
	floods := func(what string) {
		t.Helper()
		limited.tell("go")
		limited.read("floods")
		f.holds(what, testbed.Now(), 3e6, a)
		limited.tell("rest")
		limited.read("rests")
	}
	floods("beside a second account that holds the connection")
	begin := testbed.Now().Add(settle)
	second.tell("go")
	f.free("the second account", begin, 10e6, a)
	second.read("sent")
	floods("after the second account has sent on it")
}
