package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// Who sends by MPTCP is charged, too, whoever has made the connection and has it open still.
func TestEvadeByPassedMPTCP(t *testing.T) {
	evade(t, nil, []escape{
		{name: "inherited before the limit", text: `
ss = []
for _ in range(4):
    ss.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
    ss[-1].connect(there)
r, w = os.pipe()
child = os.fork()
if child == 0:
    os.read(r, 1)
    threads(4, lambda: flood(ss.pop()))
ready(child)
os.write(w, b"x")
signal.pause()
`},
		{name: "passed under the limit", text: `
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
child = os.fork()
if child == 0:
    def some():
        _, (fd,), _, _ = socket.recv_fds(theirs, 1, 1)
        flood(socket.socket(fileno=fd))
    threads(4, some)
ready(child)
ss = []
for _ in range(4):
    ss.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
    ss[-1].connect(there)
    socket.send_fds(ours, [b"x"], [ss[-1].fileno()])
signal.pause()
`},
	})
}

// A second account makes a UDP socket once. The limited one has it in a ring of io_uring's, and in no table of files.
func TestEvadeByRingOfAnother(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestIOUringAloneDatagrams")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	f.segmented()
	f.must("set", "--user", itoa(spare+31), "--up", "3MB/s")
	x := f.python(options{in: f.A}, syscalls+`
import mmap
os.seteuid(int(sys.argv[3]))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
os.seteuid(0)
s.connect((sys.argv[1], 9))
uid = int(sys.argv[2])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
p = ctypes.create_string_buffer(120)
try:
    ring = call(425, 8, ctypes.addressof(p))  # io_uring_setup
except OSError as e:
    say("ready", e)
    sys.exit()
entries, = struct.unpack_from("<I", p, 0)
_, tail, _, _, _, _, array, _ = struct.unpack_from("<8I", p, 40)
taken, given, _, _, _, answers, _, _ = struct.unpack_from("<8I", p, 80)
submissions = mmap.mmap(ring, array + 4 * entries, offset=0)
completions = mmap.mmap(ring, answers + 32 * entries, offset=0x8000000)
calls = mmap.mmap(ring, 64 * entries, offset=0x10000000)
fd = ctypes.c_int(s.fileno())
call(427, ring, 2, ctypes.addressof(fd), 1)  # IORING_REGISTER_FILES
s.close()
data = ctypes.create_string_buffer(1400)
say("ready")
wait()
n = 0
while True:
    slot = n % entries
    struct.pack_into("<BBHiQQIIQ", calls, 64 * slot, 26, 1, 0, 0, 0, ctypes.addressof(data), 1400, 0, 0)  # IORING_OP_SEND, IOSQE_FIXED_FILE
    struct.pack_into("<I", submissions, array + 4 * slot, slot)
    n += 1
    struct.pack_into("<I", submissions, tail, n & 0xffffffff)
    call(426, ring, 1, 1, 1, 0, 0)
    struct.pack_into("<I", completions, taken, struct.unpack_from("<I", completions, given)[0])
`, f.B4.String(), itoa(spare+31), itoa(spare+32))
	if why := x.read("ready"); why != "" {
		t.Skipf("this kernel refuses io_uring: %s", why)
	}
	begin := f.wire()
	x.tell("go")
	f.contained(escape{least: 0.5}, begin, evadeLimit)
}
