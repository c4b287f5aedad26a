package e2e

import (
	"encoding/json"
	"errors"
	"math/bits"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The foreign program uses these values of enum and flags in linux/bpf.h.
const (
	sockOpsActiveEstablished = 4
	sockOpsState             = 10
	sockOpsStateFlag         = 1 << 2
	sockOpsRemotePort        = 64 // offset in struct bpf_sock_ops
)

// foreign is the sockops program of other software. On connections to a port it assigns the callback flags as if no
// other program had any. It counts the state changes that reach it.
type foreign struct {
	count *ebpf.Map
	link  link.Link
}

func (f *foreign) counted(t *testing.T) uint64 {
	t.Helper()
	var n uint64
	if err := f.count.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// newForeign attaches the program to a cgroup.
func newForeign(t *testing.T, cgroup string, port uint16) *foreign {
	t.Helper()
	count, err := ebpf.NewMap(&ebpf.MapSpec{Name: "e2e_count", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "e2e_foreign", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R6, sockOpsRemotePort, asm.Word),
			asm.JNE.Imm32(asm.R2, int32(bits.ReverseBytes32(uint32(port))), "out"),
			asm.LoadMem(asm.R2, asm.R6, 0, asm.Word),
			asm.JEq.Imm(asm.R2, sockOpsState, "count"),
			asm.JNE.Imm(asm.R2, sockOpsActiveEstablished, "out"),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, sockOpsStateFlag),
			asm.FnSockOpsCbFlagsSet.Call(),
			asm.Ja.Label("out"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("count"),
			asm.LoadMapPtr(asm.R1, count.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatalf("load a foreign program: %v", err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: p})
	if err != nil {
		t.Fatalf("attach a foreign program: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), p.Close(), count.Close()); err != nil {
			t.Errorf("take a foreign program away: %v", err)
		}
	})
	return &foreign{count, l}
}

// The callback flags of another sockops program survive netnice's. netnice's flags survive the other's assignment,
// on new connections within a second.
func TestForeignSockops(t *testing.T) {
	// Not parallel: its programs answer for every process of the machine.
	for name, where := range testutil.SubsetOf(map[string]func(t *testing.T) string{
		"behind ours": func(*testing.T) string { return cgroupMount() },
		"before ours": func(t *testing.T) string { dir, _ := cgroup(t, "foreign"); return dir },
	}, "before ours") {
		t.Run(name, func(t *testing.T) {
			f := newField(upStage(t))
			const port = testbed.DefaultPort + 15 // no other program uses it
			dir := where(t)
			foreign := newForeign(t, dir, port)
			x := f.python(options{in: f.A, cgroup: dir}, `
wait()
s = connect(sys.argv[1])
threading.Thread(target=flood, args=(s,), daemon=True).start()
say("open")
wait()
s.shutdown(socket.SHUT_RDWR)
say("closed")
wait()
`, f.to(port))
			f.must("set", "--pid", x.pid(), "--up", "5MB/s")
			x.tell("go")
			x.read("open")
			at := testbed.Now().Add(1100 * time.Millisecond)
			f.holds("after a second", at, 5e6, port)
			f.holds("changed", f.must("set", "--pid", x.pid(), "--up", "2MB/s"), 2e6, port)
			f.free("lifted", f.must("unset", "--pid", x.pid()), freely, port)
			if n := foreign.counted(t); n != 0 {
				t.Errorf("%d changes of state were told before there was one", n)
			}
			x.tell("close")
			x.read("closed")
			if !eventually(2*time.Second, func() bool { return foreign.counted(t) > 0 }) {
				t.Error("the foreign program is not told of the end of its connection")
			}
		})
	}
}

// Socket options of other software, above all those larger than a page, have the same effect with netnice as without
// it.
func TestForeignOptions(t *testing.T) {
	// Not parallel: its programs answer for every process of the machine.
	spare := newUsers()
	f := newField(newStage(t))
	const many = 2000
	if err := f.A.Sysctl("net/ipv4/igmp_max_msf", itoa(many)); err != nil {
		t.Fatal(err)
	}
	const text = `
import ctypes, hashlib, json
libc = ctypes.CDLL(None, use_errno=True)
def read(s, level, name, size):  # Python's own stops at 1024 bytes
    data, n = ctypes.create_string_buffer(size), ctypes.c_uint(size)
    if libc.getsockopt(s.fileno(), level, name, data, ctypes.byref(n)):
        raise OSError(ctypes.get_errno(), "getsockopt")
    return data.raw[:n.value]
answers = {}
def note(name, f):
    try:
        got = f()
        answers[name] = "%d bytes %s" % (len(got), hashlib.sha1(got).hexdigest()) if isinstance(got, bytes) else "ok"
    except OSError as e:
        answers[name] = errno.errorcode[e.errno]

tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def padded(data):
    return data + bytes(9000 - len(data))
note("TCP_CONGESTION in 9000 bytes", lambda: tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, padded(b"reno")))
note("  read", lambda: tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16))
note("SO_RCVBUF in 9000 bytes", lambda: tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, padded(struct.pack("i", 70000))))
note("  read in 9000 bytes", lambda: read(tcp, socket.SOL_SOCKET, socket.SO_RCVBUF, 9000))
note("TCP_INFO in 9000 bytes", lambda: b"x" * len(read(tcp, socket.IPPROTO_TCP, socket.TCP_INFO, 9000)))

group, device = socket.inet_aton("232.1.2.3"), socket.inet_aton(sys.argv[1])
sources = [struct.pack("!I", 0x0a000000 + i) for i in range(int(sys.argv[2]))]
note("IP_ADD_MEMBERSHIP", lambda: udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + device))
IP_MSFILTER = 41
head = group + device + struct.pack("II", 1, len(sources))
note("IP_MSFILTER of a few", lambda: udp.setsockopt(socket.IPPROTO_IP, IP_MSFILTER, group + device + struct.pack("II", 1, 3) + b"".join(sources[:3])))
note("IP_MSFILTER of many", lambda: udp.setsockopt(socket.IPPROTO_IP, IP_MSFILTER, head + b"".join(sources)))
def filter(s, n):
    data, size = ctypes.create_string_buffer(head[:12] + struct.pack("I", n) + bytes(4 * n)), ctypes.c_uint(16 + 4 * n)
    if libc.getsockopt(s.fileno(), socket.IPPROTO_IP, IP_MSFILTER, data, ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), "getsockopt")
    return data.raw[:size.value]
note("IP_MSFILTER read", lambda: filter(udp, len(sources)))
note("IP_MSFILTER too short", lambda: udp.setsockopt(socket.IPPROTO_IP, IP_MSFILTER, head + b"".join(sources[:-1])))

IPT_SO_SET_REPLACE = IPT_SO_GET_INFO = 64
note("iptables replace", lambda: raw.setsockopt(socket.IPPROTO_IP, IPT_SO_SET_REPLACE, bytes(20000)))
note("iptables info", lambda: raw.getsockopt(socket.IPPROTO_IP, IPT_SO_GET_INFO, 84))
note("iptables, 20000 bytes", lambda: read(raw, socket.IPPROTO_IP, IPT_SO_GET_INFO, 20000))
note("unknown, 20000 bytes", lambda: tcp.setsockopt(socket.IPPROTO_TCP, 7999, bytes(20000)))
note("TCP_SNDRATE on UNIX", lambda: socket.socket(socket.AF_UNIX).setsockopt(socket.IPPROTO_TCP, 7001, 1))
say("answers", json.dumps(answers))
`
	ask := func() (answers map[string]string) {
		t.Helper()
		x := f.python(options{in: f.A}, text, f.A4.String(), itoa(many))
		if err := json.Unmarshal([]byte(x.read("answers")), &answers); err != nil {
			t.Fatal(err)
		}
		return answers
	}
	down := ask()
	t.Logf("without netnice: %v", down)
	for _, name := range []string{"TCP_CONGESTION in 9000 bytes", "SO_RCVBUF in 9000 bytes", "IP_MSFILTER of many"} {
		if down[name] != "ok" {
			t.Errorf("%s without netnice: %s, want ok, or this shows nothing", name, down[name])
		}
	}
	compare := func(when string) {
		t.Helper()
		got := ask()
		for name, want := range down {
			if got[name] != want {
				t.Errorf("%s, %s: %s, want %s", when, name, got[name], want)
			}
		}
	}
	f.daemon()
	compare("up")
	f.must("set", "--user", itoa(spare), "--up", "1MB/s")
	compare("with a limit")
	f.must("down")
	compare("down again")
}
