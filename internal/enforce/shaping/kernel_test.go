package shaping

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/pacing"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// TestMain runs the tests in network namespaces of their own, because the tests limit the ingress of every device
// there.
func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	testutil.Supervise()
	testutil.RunSharded(7, "^TestDestinations")
	os.Exit(m.Run())
}

func options() pacing.Options {
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/unified/cgroup.procs"); err == nil {
		root += "/unified"
	}
	return pacing.Options{PinDir: fmt.Sprintf("/sys/fs/bpf/%sshaping-%d", testutil.RunName(), os.Getpid()), CgroupRoot: root, Beside: true}
}

// opened opens the kernel side in the test's namespace.
func opened(t *testing.T) *Kernel {
	t.Helper()
	testutil.RequireRoot(t)
	o := options()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	k, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// own returns a limit on the ingress of this process.
func own(rate uint64) enforce.NodeSpec {
	spec := enforce.NodeSpec{ID: 7, Kind: enforce.KindTree, Subject: uint64(os.Getpid())}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Down].BytesPerSec = rate
	return spec
}

func must(t *testing.T, err error) {
	t.Helper()
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		t.Fatalf("%-.6000v", ve)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// devices returns the devices of the test's namespace, with their queueing disciplines.
func devices(t *testing.T) []string {
	t.Helper()
	return devicesBy(t, &netlink.Handle{})
}

func devicesBy(t *testing.T, nl *netlink.Handle) (out []string) {
	t.Helper()
	links, err := netdevice.List(nl.LinkList)
	must(t, err)
	for _, l := range links {
		out = append(out, l.Attrs().Name)
		qdiscs, err := netdevice.List(func() ([]netlink.Qdisc, error) { return nl.QdiscList(l) })
		must(t, err)
		for _, q := range qdiscs {
			out = append(out, l.Attrs().Name+" "+q.Type())
		}
	}
	return out
}

const (
	ours4, theirs4 = "10.96.0.1", "10.96.0.2"
	ours6, theirs6 = "fd00:96::1", "fd00:96::2"
)

// elsewhere makes another namespace. A pair of devices joins it to the test's namespace.
func elsewhere(t *testing.T) *testbed.NetNS {
	t.Helper()
	testutil.RequireRoot(t)
	far, err := testbed.NewNetNS()
	must(t, err)
	t.Cleanup(func() { must(t, far.Close()) })
	file, err := os.Open(far.Path())
	must(t, err)
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "test0"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name, PeerNamespace: netlink.NsFd(int(file.Fd()))}))
	near, err := netlink.NewHandle()
	must(t, err)
	t.Cleanup(near.Close)
	for _, end := range []struct {
		nl        *netlink.Handle
		addresses []string
	}{{near, []string{ours4 + "/24", ours6 + "/64"}}, {far.Netlink(), []string{theirs4 + "/24", theirs6 + "/64"}}} {
		link, err := end.nl.LinkByName(attrs.Name)
		must(t, err)
		for _, text := range end.addresses {
			a, err := netlink.ParseAddr(text)
			must(t, err)
			if a.IP.To4() == nil {
				a.Flags = unix.IFA_F_NODAD
			}
			must(t, end.nl.AddrAdd(link, a))
		}
		must(t, end.nl.LinkSetUp(link))
	}
	t.Cleanup(func() {
		link, err := near.LinkByName(attrs.Name)
		must(t, err)
		must(t, near.LinkDel(link))
	})
	return far
}

// dial connects from the other namespace to an address.
func dial(t *testing.T, from *testbed.NetNS, network, address string) net.Conn {
	t.Helper()
	var c net.Conn
	must(t, from.Do(func() (err error) {
		c, err = net.Dial(network, address)
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stream sends to this process over TCP until the test ends, and counts the bytes that arrive.
func stream(t *testing.T, from *testbed.NetNS, address string) *atomic.Int64 {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	must(t, err)
	out := dial(t, from, "tcp", l.Addr().String())
	in, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { _, _ = in.Close(), l.Close() })
	go func() {
		for buf := make([]byte, 64<<10); ; {
			if _, err := out.Write(buf); err != nil {
				return
			}
			pause(len(buf))
		}
	}()
	return count(in)
}

// pause sleeps after this many bytes were sent. It keeps a sender without a limit below 100 MB/s, because the other
// programs need the processors.
func pause(bytes int) { time.Sleep(time.Duration(bytes) * 10) }

// datagrams sends to this process over UDP at a rate in bytes per second, 1000 bytes at a time.
func datagrams(t *testing.T, from *testbed.NetNS, address string, rate float64) *atomic.Int64 {
	t.Helper()
	in, err := net.ListenPacket("udp", net.JoinHostPort(address, "0"))
	must(t, err)
	out := dial(t, from, "udp", in.LocalAddr().String())
	t.Cleanup(func() { _ = in.Close() })
	go func() {
		buf, begin := make([]byte, 1000), time.Now()
		for sent := 0.0; ; sent += 1000 {
			time.Sleep(time.Duration(sent/rate*1e9) - time.Since(begin))
			if _, err := out.Write(buf); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	return count(in.(net.Conn))
}

func count(c net.Conn) *atomic.Int64 {
	n := new(atomic.Int64)
	go func() {
		for buf := make([]byte, 64<<10); ; {
			got, err := c.Read(buf)
			if err != nil {
				return
			}
			n.Add(int64(got))
		}
	}()
	return n
}

func rate(n *atomic.Int64, over time.Duration) float64 {
	before, begin := n.Load(), time.Now()
	time.Sleep(over)
	return float64(n.Load()-before) / time.Since(begin).Seconds()
}

func TestReceived(t *testing.T) {
	// The limit counts the IP bytes that pass, and payload is less. After rates of GB/s, TCP fills holes for some
	// seconds. The payload that is in order then arrives in jumps.
	limit, least, most, inOrder := 4e6, 0.95, 1.02, 0.6
	if os.Getenv("NETNICE_VM") != "" {
		limit, least, inOrder = 1e6, 0.6, 0.4 // emulated machines are slow
	}
	for name, start := range testutil.SubsetOf(map[string]func(*testing.T, *testbed.NetNS) *atomic.Int64{
		"TCP":           func(t *testing.T, from *testbed.NetNS) *atomic.Int64 { return stream(t, from, ours4) },
		"TCP over IPv6": func(t *testing.T, from *testbed.NetNS) *atomic.Int64 { return stream(t, from, ours6) },
		"UDP":           func(t *testing.T, from *testbed.NetNS) *atomic.Int64 { return datagrams(t, from, ours4, 2*limit) },
		"UDP over IPv6": func(t *testing.T, from *testbed.NetNS) *atomic.Int64 { return datagrams(t, from, ours6, 2*limit) },
	}, "TCP over IPv6", "UDP") {
		t.Run(name, func(t *testing.T) {
			from := elsewhere(t)
			k := opened(t)
			defer func() { must(t, k.Down()) }()
			before := devices(t)
			n := start(t, from)
			free := rate(n, 300*time.Millisecond)
			must(t, k.SetNode(own(uint64(limit))))
			for range 2 {
				time.Sleep(time.Second)
				must(t, k.Maintain())
			}
			// On a busy machine Look may pause for a while, before or after it reads the counters.
			begin, first := time.Now(), look(t, k, 7)
			looked := time.Now()
			payload := rate(n, 2*time.Second)
			again := time.Now()
			stats := look(t, k, 7)
			bytes := float64(stats.Down.Bytes - first.Down.Bytes)
			atLeast, atMost := bytes/time.Since(begin).Seconds(), bytes/again.Sub(looked).Seconds()
			t.Logf("%.2f MB/s, limited to %.0f MB/s %.3f to %.3f MB/s, payload %.3f MB/s; %+v; %v",
				free/1e6, limit/1e6, atLeast/1e6, atMost/1e6, payload/1e6, stats.Down, k.Attached())
			if atLeast > limit*most || atMost < limit*least || payload < limit*inOrder {
				t.Errorf("%.0f to %.0f bytes/s, %.0f of payload in order, want %.0f", atLeast, atMost, payload, limit)
			}
			known, backlog := inQueue(t, k, 7)
			t.Logf("%d bytes are taken to be in the queue, which holds %d", known, backlog)
			if known > 3*backlog+64<<10 { // HTB drops as many bytes of a flood as the queue holds
				t.Errorf("%d bytes are taken to be in the queue, which holds %d", known, backlog)
			}
			must(t, k.RemoveNode(7))
			k.Drain()
			if again := rate(n, time.Second); again < limit*1.2 {
				t.Errorf("%.0f bytes/s after the limit was lifted", again)
			}
			if got := devices(t); !slices.Equal(got, before) {
				t.Errorf("devices were %q and are %q", before, got)
			}
		})
	}
}

func look(t *testing.T, k *Kernel, id uint32) enforce.NodeStats {
	t.Helper()
	stats, _, err := k.Look(id)
	must(t, err)
	return stats
}

// inQueue returns two counts of the bytes in a node's queue. The datapath derives known from the words that packets
// carry through the queue. The queueing discipline holds backlog.
func inQueue(t *testing.T, k *Kernel, id uint32) (known, backlog uint64) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	var f bpf.Inflow
	must(t, k.on.obj.Inflows.Lookup(id, &f))
	queues, err := k.on.pair.Standings()
	must(t, err)
	return f.CameBytes - min(f.GoneBytes, f.CameBytes), uint64(queues[id].Backlog)
}

// TestTakenOver checks that another process takes over a limit, lowers it, and lifts it.
func TestTakenOver(t *testing.T) {
	from := elsewhere(t)
	k := opened(t)
	before := devices(t)
	must(t, k.SetNode(own(4e6)))
	n := stream(t, from, ours4)
	time.Sleep(time.Second)
	made := devices(t)
	must(t, k.Close())
	if got := devices(t); !slices.Equal(got, made) {
		t.Errorf("devices were %q and are %q", made, got)
	}
	if got := rate(n, time.Second); got > 4e6*1.03 {
		t.Errorf("%.0f bytes/s while nobody looks after the limit", got)
	}
	k, err := Open(options())
	must(t, err)
	if got := devices(t); !slices.Equal(got, made) {
		t.Errorf("devices were %q and are %q", made, got)
	}
	must(t, k.SetNode(own(2e6)))
	time.Sleep(2 * time.Second)
	if got := rate(n, time.Second); got > 2e6*1.05 {
		t.Errorf("%.0f bytes/s after it was lowered", got)
	}
	must(t, k.Close())
	must(t, Down(options()))
	if got := devices(t); !slices.Equal(got, before) {
		t.Errorf("devices were %q and are %q", before, got)
	}
}
