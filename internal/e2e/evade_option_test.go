package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// A program cannot evade its limit by socket options or by the way in which it sends.
func TestEvadeByOptions(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGenerated and TestGeneratedKept")
	evade(t, nil, []escape{
		{name: "1 byte at a time", text: `
ready()
def some():
    s = socket.create_connection(there)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        s.send(b"x")
threads(16, some)
`},
		{name: "urgent data", text: `
ready()
def some():
    s = socket.create_connection(there)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        s.send(bytes(1000), socket.MSG_OOB)
threads(8, some)
`},
		{name: "MSG_ZEROCOPY", text: `
s = socket.create_connection(there)
s.setsockopt(socket.SOL_SOCKET, 60, 1)  # SO_ZEROCOPY
ready()
def reap():
    while True:
        try:
            s.recvmsg(1, 512, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            time.sleep(0.001)
threading.Thread(target=reap, daemon=True).start()
while True:
    try:
        s.send(bytes(1 << 18), 0x4000000)
    except OSError:
        time.sleep(0.001)
`},
		{name: "cork and a large buffer", privileged: "SO_SNDBUFFORCE", text: `
ready()
def some():
    s = socket.create_connection(there)
    s.setsockopt(socket.SOL_SOCKET, 32, 1 << 23)  # SO_SNDBUFFORCE
    while True:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        for _ in range(200):
            s.sendall(bytes(10_000))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
threads(4, some)
`},
		{name: "own pacing rate, again and again", text: `
s = socket.create_connection(there)
ready()
if os.fork() == 0:
    while True:
        for rate in (1 << 64) - 1, 1 << 40, 1 << 30:
            s.setsockopt(socket.SOL_SOCKET, 47, struct.pack("Q", rate))  # SO_MAX_PACING_RATE
flood(s)
`},
		{name: "congestion control, again and again", text: `
s = socket.create_connection(there)
ready()
if os.fork() == 0:
    while True:
        for name in b"cubic", b"reno", b"bbr":
            try:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            except OSError:
                pass  # a kernel without it
flood(s)
`},
		{name: "small segments", text: `
ready()
floods((socket.IPPROTO_TCP, socket.TCP_MAXSEG, 100))
`},
		{name: "IP options", text: `
ready()
floods((socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01" * 40))
`},
		{name: "IP options and small segments", text: `
ready()
floods((socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01" * 40), (socket.IPPROTO_TCP, socket.TCP_MAXSEG, 100))
`},
		{name: "IPv6", text: `
ready()
floods(to=there6)
`},
		{name: "IPv4 on an IPv6 socket", text: `
ready()
floods(to=("::ffff:" + there[0], there[1]))
`},
		{name: "IPv4 and IPv6", text: `
ready()
def some(at):
    with socket.create_connection(at) as s:
        flood(s)
threading.Thread(target=some, args=(there,), daemon=True).start()
some(there6)
`},
		{name: "MPTCP", text: `
ready()
floods(protocol=262)
`},
		{name: "MPTCP in small segments", text: `
ready()
floods((socket.IPPROTO_TCP, socket.TCP_MAXSEG, 200), protocol=262)
`},
		{name: "MPTCP from before the limit", text: `
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.connect(there)
ready()
flood(s)
`},
		// Between several subflows MPTCP itself is silent for 0.2 s at times, without a limit too.
		{name: "MPTCP subflows from before and after the limit", privileged: "it adds addresses to a device", least: 0.6, text: `
def ip(*words):
    subprocess.run(("ip",) + words, check=True)
def join(number):
    local = host.rsplit(".", 1)[0] + "." + str(number)
    ip("address", "add", local + "/24", "dev", "nn0")
    ip("mptcp", "endpoint", "add", local, "dev", "nn0", "subflow")
    want = "%08X:" % struct.unpack("=I", socket.inet_aton(local))
    for _ in range(300):
        with open("/proc/net/tcp") as table:
            for words in map(str.split, table):
                if words[1].startswith(want) and words[3] == "01":
                    return
        time.sleep(0.01)
    raise OSError("no subflow from " + local)
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as s:
    s.connect(there)
    s.send(b"x")
    join(101)
    ready()
    threading.Thread(target=flood, args=(s,), daemon=True).start()
    join(102)
    signal.pause()
`},
		// Data in the queue of a connection under repair count as sent. TCP really sends them when they get lost.
		{name: "TCP_REPAIR", privileged: "it needs CAP_NET_ADMIN", least: 0.01, text: `
ready()
def some():
    with socket.create_connection(there) as s:
        s.setsockopt(socket.IPPROTO_TCP, 19, 1)  # TCP_REPAIR
        s.setsockopt(socket.IPPROTO_TCP, 20, 2)  # TCP_REPAIR_QUEUE: TCP_SEND_QUEUE
        s.send(bytes(100_000))
        s.setsockopt(socket.IPPROTO_TCP, 19, 0)
        s.settimeout(1)
        flood(s)
threads(16, some)
`},
	})
}

// A high rate that a program sets on its own socket lifts no other limit.
func TestEvadeBySocketOption(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestOwnPacing and TestGenerated")
	t.Parallel()
	alone(t)
	f := newField(upStage(t))
	f.segmented()
	f.evade(escape{name: "TCP_SNDRATE", text: option + `
s = socket.create_connection(there)
ready()
if os.fork() == 0:
    while True:
        for rate in 1 << 40, 0, 1 << 31:
            set_rate(s, rate)
flood(s)
`})
}
