package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file set and lift limits while TCP and UDP flow both ways.

// bothWays is a program that sends to its peer by TCP at 8 MB/s and by UDP at 1 MB/s. It counts the bytes received
// from there. The first of the two programs listens.
const bothWays = `
role, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
got = {"tcp": 0, "udp": 0}
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
if role == "listen":
    u.bind((host, port))
    l = socket.create_server((host, port))
    say("ready")
    c, _ = l.accept()
    _, peer = u.recvfrom(2000)
    u.connect(peer)
else:
    c = socket.create_connection((host, port))
    u.connect((host, port))
    u.send(b"hello")
    say("ready")

def send(call, size, rate):
    data, sent, begin = bytes(size), 0, time.monotonic()
    while True:
        try:
            call(data)
        except ConnectionRefusedError:
            pass
        sent += size
        now = time.monotonic()
        begin = max(begin, now - sent / rate - 0.05)  # what was waited for is not made up for
        time.sleep(max(0.0005, begin + sent / rate - now))

def receive(s, kind):
    while True:
        got[kind] += len(s.recv(1 << 20))

for f, args in (send, (c.sendall, 32768, 8e6)), (send, (u.send, 1400, 1e6)), (receive, (c, "tcp")), (receive, (u, "udp")):
    threading.Thread(target=f, args=args, daemon=True).start()
while True:
    wait()
    say("got", got["tcp"], got["udp"], time.monotonic())
`

// churn is a program in A that the test limits again and again, and its peer in B.
type churn struct {
	*inbound
	x, peer          *script
	client           *client.Client
	setting, lifting time.Duration // time that the commands took, in all
}

// churner is the user of churn's programs. It is not root, as limits on root in other tests affect connections that
// two daemons see.
const churner = 1018

func newChurn(t *testing.T) *churn {
	t.Helper()
	c := &churn{inbound: newInbound(newStage(t), testutil.MustPair(t))}
	c.peer = c.python(options{in: c.B, uid: churner}, bothWays, "listen", c.B4.String(), "6001")
	c.peer.read("ready")
	c.x = c.python(options{in: c.A, uid: churner}, bothWays, "connect", c.B4.String(), "6001")
	c.x.read("ready")
	c.client = client.New(c.root("/run/netnice/netnice.sock"))
	t.Cleanup(c.client.Close)
	return c
}

// root returns a path on the stage as the tests see it.
func (c *churn) root(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", c.daemon.cmd.Process.Pid, path)
}

// received holds the bytes of payload that both ends received, by TCP and by UDP.
type received struct{ upTCP, upUDP, downTCP, downUDP, at float64 }

func (c *churn) received() (r received) {
	c.t.Helper()
	ask := func(s *script, tcp, udp *float64) {
		s.tell("how much")
		if _, err := fmt.Sscan(s.read("got"), tcp, udp, &r.at); err != nil {
			c.t.Fatal(err)
		}
	}
	ask(c.peer, &r.upTCP, &r.upUDP)
	ask(c.x, &r.downTCP, &r.downUDP)
	return r
}

// flows checks that all four flows are as fast as without a limit.
func (c *churn) flows() {
	c.t.Helper()
	const least = 0.6 // part of their sending rate: Python, on a machine that others use too
	c.assertWithin("all that is sent comes", 20*time.Second, func() bool {
		before := c.received()
		time.Sleep(400 * time.Millisecond)
		after := c.received()
		for _, f := range []struct{ before, after, rate float64 }{
			{before.upTCP, after.upTCP, 8e6},
			{before.downTCP, after.downTCP, 8e6},
			{before.upUDP, after.upUDP, 1e6},
			{before.downUDP, after.downUDP, 1e6},
		} {
			if f.after-f.before < least*f.rate*(after.at-before.at) {
				c.t.Logf("%+v after %+v", after, before)
				return false
			}
		}
		return true
	})
}

// left holds the resources of a daemon without limits; the test must add none.
type left struct {
	devices, pins, qdiscs string
	nodes, fds, threads   int
	entries               map[string]int // entries of maps
	objects               map[string]int // programs, maps and links that the daemon holds
	filters               int            // on devices
	memory                int            // resident bytes
}

func (l left) String() string {
	return fmt.Sprintf("%d KB, %d threads, %d files, of these %d programs, %d maps, %d links; %d pins, %d filters, %d devices, %d qdiscs",
		l.memory>>10, l.threads, l.fds, l.objects["prog"], l.objects["map"], l.objects["link"],
		strings.Count(l.pins, "\n"), l.filters, strings.Count(l.devices, "\n"), strings.Count(l.qdiscs, ",")+1)
}

// leftovers reads the resources of the daemon. It closes connections of the API first.
func (c *churn) leftovers() (l left) {
	c.t.Helper()
	c.client.Close()
	l.devices = c.devices()
	links, err := c.A.Netlink().LinkList()
	if err != nil {
		c.t.Fatal(err)
	}
	var qdiscs []string
	for _, link := range links {
		list, err := c.A.Netlink().QdiscList(link)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, q := range list {
			qdiscs = append(qdiscs, fmt.Sprint(link.Attrs().Name, " ", q.Type()))
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := c.A.Netlink().FilterList(link, parent)
			if err != nil && !errors.Is(err, unix.EINVAL) { // the device has no such qdisc
				c.t.Fatal(err)
			}
			l.filters += len(filters)
		}
	}
	l.qdiscs = strings.Join(qdiscs, ", ")
	dir := c.root("/sys/fs/bpf/netnice")
	pins, err := os.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	l.entries = make(map[string]int)
	for _, p := range pins {
		l.pins += p.Name() + "\n"
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, p.Name()), nil)
		if err != nil {
			continue // it is no map
		}
		if n, ok := entries(m); ok {
			l.entries[p.Name()] = n
		}
		_ = m.Close() // read only: nothing to flush
	}
	self := fmt.Sprintf("/proc/%d", c.daemon.cmd.Process.Pid)
	count := func(name string) int {
		list, err := os.ReadDir(filepath.Join(self, name))
		if err != nil {
			c.t.Fatal(err)
		}
		return len(list)
	}
	l.fds, l.threads = count("fd"), count("task")
	l.objects = make(map[string]int)
	for o := range objectsOf(c.t, c.daemon.cmd.Process.Pid) {
		l.objects[o.kind]++
	}
	text, err := os.ReadFile(filepath.Join(self, "statm"))
	if err != nil {
		c.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		c.t.Fatal(err)
	}
	l.memory = pages * os.Getpagesize()
	nodes, err := c.client.Nodes(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	l.nodes = len(nodes.Nodes)
	return l
}

// entries counts the entries of a hash table. It returns false for other types, also for one that evicts entries.
func entries(m *ebpf.Map) (n int, ok bool) {
	if !slices.Contains([]ebpf.MapType{ebpf.Hash, ebpf.PerCPUHash, ebpf.HashOfMaps}, m.Type()) {
		return 0, false
	}
	var key []byte
	for next := make([]byte, m.KeySize()); ; key = next {
		var err error
		if key == nil {
			err = m.NextKey(nil, next)
		} else {
			next = make([]byte, m.KeySize())
			err = m.NextKey(key, next)
		}
		if err != nil {
			return n, errors.Is(err, ebpf.ErrKeyNotExist)
		}
		if n++; n > int(m.MaxEntries()) {
			return n, false // entries were removed meanwhile, and the iteration started again
		}
	}
}

// set sets one limit, as a program with the client library does.
func (c *churn) set(ctx context.Context, kind int, rate uint64) error {
	w := api.Wish{}
	switch kind {
	case 0:
		w.UpBytesPerSec = &rate
	case 1:
		w.DownBytesPerSec = &rate
	case 2:
		w.TotalBytesPerSec = &rate
	default:
		w.UpBytesPerSec, w.DownBytesPerSec = &rate, &rate
	}
	_, err := c.client.Set(ctx, api.SetRequest{Subject: c.subject(), Wish: w})
	return err
}

func (c *churn) subject() api.Subject { return api.Subject{Kind: api.KindPID, ID: c.x.pid()} }

// spin adds and removes limits, of all kinds from the first on. Between the two steps it waits for a random time
// below longest.
func (c *churn) spin(cycles, first int, longest time.Duration) {
	c.t.Helper()
	ctx := c.t.Context()
	for i := range cycles {
		begin := time.Now()
		err := c.set(ctx, (first+i)%4, uint64(200e3*math.Exp(rand.Float64()*math.Log(40)))) // to 8 MB/s
		c.setting += time.Since(begin)
		time.Sleep(rand.N(longest))
		begin = time.Now()
		if err == nil {
			_, err = c.client.Unset(ctx, c.subject(), false)
		}
		c.lifting += time.Since(begin)
		if err != nil {
			c.t.Fatalf("cycle %d: %v", i, err)
		}
	}
}

// The test sets and lifts limits NETNICE_TEST_CYCLES times, or ten thousand times with NETNICE_TEST_LONG=1. Traffic
// flows as before, and no resource of the limits is left. A cycle mostly waits at its end for the backlog to drain,
// up to 0.3 s: a packet of 32 KB at 200 KB/s takes half of that.
func TestChurn(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetAndUnsetAgain and internal/daemon TestSetChangeLift")
	t.Parallel()
	warm, cycles, longest := 8, 40, 80*time.Millisecond
	if os.Getenv("NETNICE_TEST_LONG") == "1" {
		cycles = 10_000
	}
	if text := os.Getenv("NETNICE_TEST_CYCLES"); text != "" {
		var err error
		if cycles, err = strconv.Atoi(text); err != nil {
			t.Fatalf("NETNICE_TEST_CYCLES: %v", err)
		}
	}
	if cycles > 1000 {
		warm, longest = 500, 40*time.Millisecond
	}
	c := newChurn(t)
	c.flows()
	never := c.leftovers()
	c.spin(1, 2, longest) // the first limit of all, and the last
	// The limit of another process stays from here on, and keeps the devices in place. Without it the kernel would
	// verify the programs again for each first limit.
	idle := c.script(options{in: c.A}, "sleep", "infinity")
	c.must("set", "--pid", idle.pid(), "--total", "1MB/s")
	c.spin(warm, 0, longest)
	// The daemon creates the queue for datagrams on request, which comes once a second at most.
	c.assertWithin("there is a queue for datagrams", 10*time.Second, func() bool {
		c.spin(4, 0, longest)
		_, err := os.Stat(c.root("/sys/fs/bpf/netnice/sender"))
		return err == nil
	})
	time.Sleep(1200 * time.Millisecond) // the daemon's tick, once a second, has passed
	before := c.leftovers()
	begin := time.Now()
	c.setting, c.lifting = 0, 0
	for done := 0; done < cycles; done += 1000 {
		c.spin(min(1000, cycles-done), done, longest)
		if cycles > 1000 {
			t.Logf("after %d: %v", done+1000, c.leftovers())
			c.flows()
		}
	}
	each := func(all time.Duration) time.Duration {
		return (all / time.Duration(cycles)).Round(10 * time.Microsecond)
	}
	t.Logf("%d cycles in %v: to set a limit took %v, to lift it %v", cycles, time.Since(begin).Round(time.Millisecond), each(c.setting), each(c.lifting))
	after := c.nothing("added", before)
	c.must("unset", "--pid", idle.pid())
	c.nothing("left over", never)
	t.Logf("the daemon had: %v", before)
	t.Logf("and has:        %v", after)
	t.Logf("without limits: %v", c.leftovers())
	// The heap of a Go program may double before the collector runs.
	if grown := after.memory - before.memory; grown > 16<<20 {
		t.Errorf("the daemon has grown by %d KB", grown>>10)
	}
	c.flows()
	if why := c.status().Counters; len(why) > 0 {
		t.Logf("faults that failed open: %v", why)
	}
}

// nothing checks that the daemon soon has no more resources than before.
func (c *churn) nothing(what string, before left) (after left) {
	c.t.Helper()
	c.assertWithin("nothing is "+what, 3*time.Second, func() bool {
		after = c.leftovers()
		return after.differs(before) == ""
	})
	if more := after.differs(before); more != "" {
		c.t.Errorf("%s: %s", what, more)
	}
	return after
}

// differs names the resources that l has more of than before.
func (l left) differs(before left) string {
	var what []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			what = append(what, fmt.Sprintf(format, args...))
		}
	}
	add(l.nodes != before.nodes, "%d nodes, were %d", l.nodes, before.nodes)
	add(l.devices != before.devices, "devices\n%s, were\n%s", l.devices, before.devices)
	add(l.qdiscs != before.qdiscs, "qdiscs %s, were %s", l.qdiscs, before.qdiscs)
	add(l.pins != before.pins, "pins\n%s, were\n%s", l.pins, before.pins)
	add(l.filters != before.filters, "%d filters, were %d", l.filters, before.filters)
	for kind, n := range l.objects {
		add(n > before.objects[kind]+2, "%d BPF %ss, were %d", n, kind, before.objects[kind])
	}
	add(l.fds > before.fds+2, "%d files, were %d", l.fds, before.fds)
	add(l.threads > before.threads+4, "%d threads, were %d", l.threads, before.threads)
	for name, n := range l.entries {
		add(n > before.entries[name]+2, "%d entries of %s, were %d", n, name, before.entries[name])
	}
	return strings.Join(what, "; ")
}
