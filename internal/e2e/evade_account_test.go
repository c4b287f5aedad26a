package e2e

import (
	"fmt"
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

// Two accounts work together, and exchange sockets by a Unix socket. Whatever the limited one sends counts for it, also by
// sockets that the other one has made, has open still, or has accepted from.
func TestEvadeByTwoAccounts(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDescriptorPassing, TestEvadeByServers and TestUserLimitsOwnProcess")
	const flooding = `
def floods(s):
    while True:
        try:
            s.send(bytes(1400))
        except OSError:
            time.sleep(0.001)
`
	// usesToo returns a program that sends next to nothing, so that the socket's last sender is its account.
	usesToo := func(pause string) string {
		return `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((there[0], 9))
pass_on(s)
ready()
while True:
    try:
        s.send(b"x")
    except OSError:
        pass
    time.sleep(` + pause + `)
`
	}
	for _, c := range []struct {
		name            string
		limited, second string // programs; they exchange sockets by pass_on() and take()
		against         string
		least           float64
		open            bool // the man page names it
	}{
		{"datagrams by a socket that the other one has made", flooding + `
s = take()
ready()
floods(s)
`, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((there[0], 9))
pass_on(s)
ready()
signal.pause()
`, "", 0.5, false},
		{"datagrams by a socket that the other one uses, too", flooding + `
s = take()
ready()
floods(s)
`, usesToo("0.002"), "", 0.5, false},
		{"datagrams by a socket that the other one uses often", flooding + `
s = take()
ready()
floods(s)
`, usesToo("0.0002"), "", 0.5, false},
		{"datagrams by a new socket of the other one for each", `
ready()
while True:
    with take() as s:
        for _ in range(3):
            try:
                s.send(bytes(1400))
            except OSError:
                pass
`, `
ready()
while True:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((there[0], 9))
        pass_on(s)
`, "", 0.5, false},
		{"a listener of the other one", `
listener = take()
ready()
while True:
    s, _ = listener.accept()
    threading.Thread(target=flood, args=(s,), daemon=True).start()
`, `
pass_on(socket.create_server(("", 8080)))
ready()
signal.pause()
`, readsAll, 0, false},
		{"connections that the other one accepts by a listener of the limited one", `
listener = socket.create_server(("", 8080))
pass_on(listener)
listener.close()
ready()
while True:
    threading.Thread(target=flood, args=(take(),), daemon=True).start()
`, `
listener = take()
ready()
kept = []
while True:
    s, _ = listener.accept()
    kept.append(s)  # it stays open here
    pass_on(s)
`, readsAll, 0, false},
		// A connection is charged to the account that sent on it last, until all that it has queued has left.
		{"connections that the other one has made and sends on now and then", `
ss = [take() for _ in range(4)]
ready()
threads(4, lambda: flood(ss.pop()))
`, `
ss = [socket.create_connection(there) for _ in range(4)]
for s in ss:
    pass_on(s)
ready()
while True:
    for s in ss:
        try:
            s.send(b"x", socket.MSG_DONTWAIT)
        except OSError:
            pass
    time.sleep(0.002)
`, "", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newField(upStage(t))
			f.segmented()
			limited := newUsers()
			second, name := limited+1, testutil.RunName()+itoa(limited)
			const port uint16 = testbed.DefaultPort
			args := []string{f.to(port), fmt.Sprintf("[%s]:%d", f.B6, port), name}
			f.must("set", "--user", itoa(limited), "--up", fmt.Sprintf("%.0fB/s", evadeLimit))
			y := f.python(options{in: f.A, uid: second}, evader+exchanges(true)+c.second, args...)
			y.read("listens")
			x := f.python(options{in: f.A, uid: limited}, evader+exchanges(false)+c.limited, args...)
			x.read("ready")
			y.read("ready")
			y.tell("go")
			y.read("going")
			begin := f.wire()
			x.tell("go")
			x.read("going")
			if c.against != "" {
				f.python(options{in: f.B}, c.against, f.A4.String()+":8080")
			}
			e := escape{least: c.least, open: c.open, ahead: evadeEarly, subject: "user:" + itoa(limited)}
			f.contained(e, begin, evadeLimit)
		})
	}
}

// exchanges returns how a program passes sockets to the other one of two, and takes them. One of them listens.
func exchanges(listens bool) string {
	begin := `
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect("\0" + sys.argv[3])
`
	if listens {
		begin = `
meeting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
meeting.bind("\0" + sys.argv[3])
meeting.listen()
say("listens")
channel, _ = meeting.accept()
`
	}
	return begin + `
def pass_on(s):
    socket.send_fds(channel, [b"x"], [s.fileno()])
def take():
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    return socket.socket(fileno=fds[0])
`
}

// readsAll makes twelve connections to a server and reads from them, each again when it ends.
const readsAll = `
for _ in range(12):
    def get():
        while True:
            try:
                with connect(sys.argv[1]) as s:
                    while s.recv(1 << 16):
                        pass
            except OSError:
                time.sleep(0.01)
    threading.Thread(target=get, daemon=True).start()
wait()
`
