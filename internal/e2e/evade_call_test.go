package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// syscalls is the head of programs that make system calls of their own.
const syscalls = `
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def call(*args):
    n = libc.syscall(*map(ctypes.c_long, args))
    if n < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return n
`

// handed leaves a UDP socket in a Unix socket's queue, where no process has it open when the limit is set. Then it
// makes the socket the descriptor 2000.
const handed = `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect((there[0], 9))
    socket.send_fds(a, [b"x"], [s.fileno()])
ready()
_, (fd,), _, _ = socket.recv_fds(b, 1, 1)
os.dup2(fd, 2000)
os.close(fd)
`

// The sending process is charged, whatever call it uses, and whatever the socket was used for before.
func TestEvadeByCalls(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGenerated and TestGeneratedKept")
	evade(t, nil, []escape{
		// The first argument of io_submit is no descriptor.
		{name: "io_submit", least: 0.5, text: syscalls + handed + `
setup, submit, completed = (0, 2, 4) if arm else (206, 209, 208)
count = 16
data = ctypes.create_string_buffer(1400)
one = struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, 2000, ctypes.addressof(data), 1400, 0, 0, 0, 0)  # IOCB_CMD_PWRITE
some = ctypes.create_string_buffer(one * count)
each = (ctypes.c_void_p * count)(*[ctypes.addressof(some) + i * len(one) for i in range(count)])
events = ctypes.create_string_buffer(32 * count)
ring = ctypes.c_ulong()
call(setup, 64, ctypes.addressof(ring))
while True:
    n = call(submit, ring.value, count, ctypes.addressof(each))
    call(completed, ring.value, n, count, ctypes.addressof(events), 0)
`},
		{name: "another's datagram socket by pidfd_getfd", least: 0.5, text: syscalls + taken(`
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((there[0], 9))
ours = [s]
`, `
def sends(take):
    s = take()
    while True:
        try:
            s.send(bytes(1400))
        except OSError:
            pass
`)},
		{name: "another's connections by pidfd_getfd", text: syscalls + taken(`
ours = [socket.create_connection(there) for _ in range(4)]
`, `
def sends(take):
    threads(4, lambda: flood(take()))
`)},
		{name: "corked before the limit", least: 0.5, ahead: 150 * time.Millisecond, text: `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
CORK = 1
def corked(s):
    try:
        s.setsockopt(socket.IPPROTO_UDP, CORK, 1)
        s.send(bytes(60000))
    except OSError:
        pass
ss = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(400)]
for s in ss:
    s.connect((there[0], 9))
    corked(s)
ready()
while True:
    for s in ss:
        try:
            s.setsockopt(socket.IPPROTO_UDP, CORK, 0)
        except OSError:
            pass
        corked(s)
`},
		{name: "segments of 100 bytes by UDP_SEGMENT", least: 0.5, text: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((there[0], 9))
s.setsockopt(socket.IPPROTO_UDP, 103, 100)
ready()
while True:
    try:
        s.send(bytes(6400))
    except OSError:
        pass
`},
		{name: "priority, mark and type of service, again and again", privileged: "SO_MARK", least: 0.5, text: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((there[0], 9))
ready()
for i in range(1 << 40):
    for level, name, value in (socket.SOL_SOCKET, socket.SO_PRIORITY, i % 7), (socket.SOL_SOCKET, socket.SO_MARK, i % 5), (socket.IPPROTO_IP, socket.IP_TOS, i * 4 % 256):
        s.setsockopt(level, name, value)
    try:
        s.send(bytes(1400))
    except OSError:
        pass
`},
		// An IPv6 socket with a connection over IPv4 becomes an IPv4 socket.
		{name: "IPV6_ADDRFORM", text: `
ready()
def some():
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.connect(("::ffff:" + there[0], there[1]))
        s.setsockopt(socket.IPPROTO_IPV6, 1, socket.AF_INET)
        flood(s)
threads(4, some)
`},
		// Its children become children of its parent, which has no limit.
		{name: "CLONE_PARENT", text: syscalls + `
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
r, w = os.pipe()
root = os.fork()
if root == 0:
    os.read(r, 1)
    for _ in range(4):
        if call(220 if arm else 56, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            flood(socket.create_connection(there))
            os._exit(0)
    signal.pause()
ready(root)
os.write(w, b"x")
signal.pause()
`},
		// IPv6 limits the number of a socket's groups only by its memory for options.
		{name: "no room beside groups of IPv6", least: 0.5, text: `
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
lo = socket.if_nametoindex("lo")
for group in range(1, 1 << 16):
    try:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, f"ff05::{group:x}") + struct.pack("i", lo))
    except OSError as e:
        if e.errno not in (errno.ENOMEM, errno.ENOBUFS):
            raise
        break
else:
    raise SystemExit("there is always room for another group")
ready()
while True:
    try:
        s.sendto(bytes(1400), (there6[0], 9))
    except OSError:
        pass
`},
	})
}

// taken starts a limited child that takes the sockets of its parent, which has no limit. ours holds these sockets,
// and the child inherits none of them. The child sends with sends(take), where take returns one socket.
func taken(ours, sends string) string {
	return sends + `
r, w = os.pipe()
child = os.fork()
if child == 0:
    fds = os.read(r, 1000).split()
    parent = os.pidfd_open(os.getppid())
    sends(lambda: socket.socket(fileno=call(438, parent, int(fds.pop()), 0)))  # pidfd_getfd
` + ours + `
ready(child)
os.write(w, " ".join(str(s.fileno()) for s in ours).encode())
signal.pause()
`
}

// Control messages may lead the limit by a second more than others, once.
func TestEvadeByPings(t *testing.T) {
	evade(t, func(f *field) {
		if err := f.A.Sysctl("net/ipv4/ping_group_range", "0 2147483647"); err != nil {
			f.t.Fatal(err)
		}
	}, []escape{
		{name: "ping sockets", least: 0.5, ahead: 1100 * time.Millisecond, text: `
ready()
def some():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.connect((there[0], 0))
        for i in range(1 << 40):
            try:
                s.send(struct.pack("!BBHHH", 8, 0, 0, 0, i & 0xffff) + bytes(1400))
            except OSError:
                pass
threads(2, some)
`},
	})
}
