package e2e

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/bpf"
)

// leaksEnv sets the number of processes and sockets that TestLeaks starts and ends.
const leaksEnv = "NETNICE_TEST_LEAKS"

// inventory counts the resources that netnice holds for its limits.
type inventory struct {
	entries   map[string]int // entries of maps, except caches and maps that count ended subjects
	sockets   int            // sockets with state that the user owns, or that are limited
	kinds     string         // kinds of these sockets
	processes int            // processes in a tree
	files     int            // open files of the daemon
	rssKB     int
	objects   map[object]bool
}

func (i inventory) String() string {
	return fmt.Sprintf("map entries %v, %d sockets with state%.500s, %d processes in a tree, daemon: %d files, %d kB, %d BPF objects",
		i.entries, i.sockets, i.kinds, i.processes, i.files, i.rssKB, len(i.objects))
}

// inventory counts the resources in the kernel, without asking netnice.
func (s *stage) inventory(d *daemon, uid uint32) (all inventory) {
	s.t.Helper()
	pid := d.cmd.Process.Pid
	all.entries, all.objects = map[string]int{}, objectsOf(s.t, pid)
	for range 3 { // excludes iterators, which live for a moment
		time.Sleep(30 * time.Millisecond)
		again := objectsOf(s.t, pid)
		maps.DeleteFunc(all.objects, func(o object, _ bool) bool { return !again[o] })
	}
	s.do(func() error {
		for _, name := range []string{"clocks", "users", "cgroups", "nodes"} {
			m, err := ebpf.LoadPinnedMap("/sys/fs/bpf/netnice/"+name, nil)
			if err != nil {
				return fmt.Errorf("map %s: %w", name, err)
			}
			all.entries[name] = entriesOf(m)
			if err := m.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	out := s.iterate(all.objects, "nn_list_sockets", "sockets")
	if out == nil { // this kernel cannot iterate over maps: see bpf/each_socket.h
		out = append(s.iterate(all.objects, "nn_files_list_s", ""), s.iterate(all.objects, "nn_conns_list_s", "")...)
	}
	seen := map[uint64]bool{}
	for ; len(out) >= int(unsafe.Sizeof(bpf.SocketRecord{})); out = out[unsafe.Sizeof(bpf.SocketRecord{}):] {
		r := (*bpf.SocketRecord)(unsafe.Pointer(&out[0]))
		had := seen[r.Cookie]
		seen[r.Cookie] = true
		// While a user is limited, netnice examines others' sockets and finds them free.
		if !had && (r.State.Path[0].Node != 0 || r.State.Uid == uid) {
			all.sockets++
			all.kinds += fmt.Sprintf(" [process %d, TCP state %d, port %d to %d, path %v]", r.State.Tgid, r.TcpState, r.LocalPort, r.RemotePort, r.State.Path)
		}
	}
	all.processes = len(s.iterate(all.objects, "nn_list_tasks", "")) / int(unsafe.Sizeof(bpf.TaskRecord{}))
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		s.t.Fatal(err)
	}
	all.files = len(files)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if all.rssKB, err = strconv.Atoi(strings.Fields(rest)[0]); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// entriesOf counts the entries of a map, and in the array of nodes the nodes in use.
func entriesOf(m *ebpf.Map) (n int) {
	it := m.Iterate()
	if m.Type() == ebpf.Array {
		var index uint32
		var node bpf.Node
		for it.Next(&index, &node) {
			if node.Flags&bpf.NodeLive != 0 {
				n++
			}
		}
		return n
	}
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	for it.Next(&key, &value) {
		n++
	}
	return n
}

// iterate runs an iterator among the objects, over a map among them. It returns nil if there is no such iterator.
func (s *stage) iterate(objects map[object]bool, program, over string) []byte {
	s.t.Helper()
	var opts link.IterOptions
	for o := range objects {
		switch o.kind {
		case "prog":
			p, err := ebpf.NewProgramFromID(ebpf.ProgramID(o.id))
			if err != nil {
				continue
			}
			if info, err := p.Info(); err == nil && info.Name == program {
				opts.Program = p
				defer p.Close()
			} else {
				p.Close()
			}
		case "map":
			m, err := ebpf.NewMapFromID(ebpf.MapID(o.id))
			if err != nil {
				continue
			}
			if info, err := m.Info(); err == nil && over != "" && info.Name == over {
				opts.Map = m
				defer m.Close()
			} else {
				m.Close()
			}
		}
	}
	if opts.Program == nil {
		return nil
	}
	var out []byte
	s.do(func() error {
		it, err := link.AttachIter(opts)
		if err != nil {
			return fmt.Errorf("iterate by %s: %w", program, err)
		}
		defer it.Close()
		r, err := it.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		out, err = io.ReadAll(r)
		return err
	})
	return out
}

// Processes and sockets begin and end under a tree's and a user's limit, some with limits of their own. Nothing of
// them stays: no entry, no state, no file, no memory of the daemon.
func TestLeaks(t *testing.T) {
	// Not parallel: it counts what the whole machine holds.
	spare := newUsers()
	n := 5000
	if text := os.Getenv(leaksEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s=%q: %v", leaksEnv, text, err)
		}
	}
	s := newStage(t)
	f := newField(s)
	d := s.daemon()
	server := f.python(options{in: f.B}, `
def serve(port):
    l = socket.create_server((sys.argv[1], port), backlog=4096)
    while True:
        c, _ = l.accept()
        try:
            c.recv(100)
        except OSError:
            pass
        c.close()
for port in range(6300, 6316):
    threading.Thread(target=serve, args=(port,), daemon=True).start()
time.sleep(0.2)
say("ready")
wait()
`, f.B4.String())
	server.read("ready")
	x := f.python(options{in: f.A, uid: spare + 10}, `
import signal
host = sys.argv[1]
def connection(i):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)) # no TIME_WAIT
    s.connect((host, 6300 + i % 16))
    s.send(bytes(100))
    return s
def processes(n):
    alive = 0
    for i in range(n):
        if os.fork() == 0:
            if i % 4:
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM if i % 8 < 4 else socket.SOCK_STREAM)
            else:
                connection(i)
            os._exit(0)
        alive += 1
        while alive > 50:
            os.wait()
            alive -= 1
    while alive:
        os.wait()
        alive -= 1
def sockets(n):
    for i in range(n):
        connection(i).close()
say("ready")
while True:
    what, n = wait().split()
    if what == "limit": # a process that is to have a limit of its own
        pid = os.fork()
        if pid == 0:
            s = connection(0)
            time.sleep(100)
            os._exit(0)
        say("pid", pid)
    elif what == "end":
        os.kill(int(n), signal.SIGKILL)
        os.waitpid(int(n), 0)
        say("done")
    elif what == "bare":
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt %s ]; do (:); i=$((i+1)); done" % n], check=True)
        say("done")
    else:
        (processes if what == "processes" else sockets)(int(n))
        say("done")
`, f.B4.String())
	x.read("ready")
	user := itoa(spare + 10)
	f.must("set", "--user", user, "--up", "100MB/s", "--down", "100MB/s")
	f.must("set", "--pid", x.pid(), "--up", "100MB/s")
	c := caller(t, d)

	done := func(what string, n int) time.Duration {
		t.Helper()
		begin := time.Now()
		x.tell(fmt.Sprint(what, " ", n))
		for end := begin.Add(10*time.Second + time.Duration(n)*20*time.Millisecond); ; {
			select {
			case line := <-x.lines:
				if line != "done" {
					t.Fatalf("the program says %q\n%s", line, x.wrong.String())
				}
				return time.Since(begin)
			case <-time.After(time.Until(end)):
				t.Fatalf("%s: not done after %v\n%s", what, time.Since(begin), x.wrong.String())
			}
		}
	}
	ended := map[string]bool{}
	limits := func(n int) {
		t.Helper()
		for range n {
			x.tell("limit 0")
			pid := x.read("pid")
			rate := uint64(1e6)
			if _, err := c.Set(t.Context(), api.SetRequest{Subject: api.Subject{Kind: api.KindPID, ID: pid}, Wish: api.Wish{UpBytesPerSec: &rate}}); err != nil {
				t.Fatal(err)
			}
			x.tell("end " + pid)
			x.read("done")
			ended["pid:"+pid] = true
		}
	}
	// settled waits until only the two limits and their holder are left.
	settled := func() inventory {
		t.Helper()
		var is inventory
		if !eventually(20*time.Second, func() bool {
			is = s.inventory(d, spare+10)
			return is.entries["nodes"] == 2 && is.sockets == 0 && is.processes == 1
		}) {
			t.Errorf("not everything goes: %v", is)
		}
		return is
	}
	// The first ones allocate lasting resources: buffers, the pool of threads.
	done("processes", 300)
	done("sockets", 300)
	limits(20)
	before := settled()
	faults := f.status().Counters
	t.Logf("before: %v", before)

	own := n / 25
	bare := 0 // processes without a socket, which start faster
	if os.Getenv(leaksEnv) == "" {
		bare = n * 4 / 5
	}
	t.Logf("%d processes in %v", n, done("bare", bare)+done("processes", n-bare))
	t.Logf("%d sockets in %v", n, done("sockets", n))
	begin := time.Now()
	limits(own)
	t.Logf("%d limits in %v", own, time.Since(begin))
	after := settled()
	t.Logf("after: %v", after)
	more := 0
	for o := range after.objects {
		if !before.objects[o] {
			more++
		}
	}
	if !maps.Equal(before.entries, after.entries) || more > 0 {
		t.Errorf("before there were %v, after %v, %d BPF objects of which are new", before, after, more)
	}
	if after.files > before.files+4 { // connections of clients
		t.Errorf("the daemon has %d files open, before %d", after.files, before.files)
	}
	const roomKB = 16 << 10 // for a heap that the collector empties now and then
	if after.rssKB > before.rssKB+roomKB {
		t.Errorf("the daemon has %d kB, before %d", after.rssKB, before.rssKB)
	}
	for name, count := range f.status().Counters {
		if count > faults[name] && name != bpf.FaultEventLost { // after which netnice checks once a second
			t.Errorf("%s was counted %d times", name, count-faults[name])
		}
	}
	for subject := range f.nodes() {
		if ended[subject] {
			t.Errorf("the limit of %s, which has ended, is there still", subject)
		}
	}
	x.close()
	f.gone("pid:" + x.pid())
	server.close()
	f.must("unset", "--user", user)
	if is := s.inventory(d, spare+10); is.sockets != 0 || is.processes != 0 || slices.ContainsFunc(slices.Collect(maps.Values(is.entries)), func(n int) bool { return n > 0 }) {
		t.Errorf("without a limit there are %v", is)
	}
}
