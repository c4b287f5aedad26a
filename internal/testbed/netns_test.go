package testbed_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func itoa(n int) string { return strconv.Itoa(n) }

// inode returns the inode of the namespace behind a path.
func inode(t *testing.T, path string) string {
	t.Helper()
	text, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestNamespacesAreRemoved(t *testing.T) {
	testutil.RequireRoot(t)
	before := inode(t, "/proc/self/ns/net")
	pair, err := testbed.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	links, err := pair.A.Netlink().LinkList()
	if err != nil || len(links) != 2 {
		t.Errorf("%d links in A (%v), want lo and %s", len(links), err, testbed.Device)
	}
	a := inode(t, pair.A.Path())
	if a == before {
		t.Fatal("A is the namespace of the test itself")
	}
	r, err := testbed.StartReceiver(pair.B, testbed.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if got := inode(t, "/proc/"+itoa(r.PID())+"/ns/net"); got != inode(t, pair.B.Path()) {
		t.Errorf("the receiver runs in %s", got)
	}
	for _, c := range []func() error{r.Close, r.Close, pair.Close, pair.Close} {
		if err := c(); err != nil {
			t.Fatal(err)
		}
	}
	if held := holders(t, a); len(held) > 0 {
		t.Errorf("still held by %v", held)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		got, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net")
		if err == nil && got != before {
			t.Errorf("thread %s stayed in %s", task.Name(), got)
		}
	}
}

// holders lists descriptors of any process that keep a namespace alive.
func holders(t *testing.T, ns string) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(os.DirFS("/proc/self"), "fd", func(path string, _ fs.DirEntry, _ error) error {
		if link, err := os.Readlink("/proc/self/" + path); err == nil && link == ns {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A sender must end when the process that started it dies.
func TestTrafficEndsWithItsStarter(t *testing.T) {
	_, _, s := flow(t, testbed.ReceiverConfig{}, testbed.SenderConfig{})
	start(t, s)
	if err := s.LoseStarter(); err != nil { // the kernel does the same when the starting process dies
		t.Fatal(err)
	}
	select {
	case <-s.Ended():
	case <-time.After(2 * time.Second):
		t.Fatal("the sender is still there")
	}
}

func TestQuickAck(t *testing.T) {
	pair := testutil.MustPair(t)
	for _, want := range []int{0, 1} {
		for _, to := range []netip.Addr{pair.A4, pair.A6} {
			routes, err := pair.B.Netlink().RouteGet(to.AsSlice())
			if err != nil || len(routes) != 1 || routes[0].QuickACK != want {
				t.Errorf("route to %s: %+v (%v), want quickack %d", to, routes, err, want)
			}
		}
		if want == 0 {
			if err := pair.QuickAck(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAddressesAndSysctls(t *testing.T) {
	pair := testutil.MustPair(t)
	link, err := pair.B.Netlink().LinkByName(testbed.Device)
	if err != nil {
		t.Fatal(err)
	}
	if link.Attrs().MTU != 1500 {
		t.Errorf("MTU %d, want 1500", link.Attrs().MTU)
	}
	addrs, err := pair.B.Netlink().AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, a := range addrs {
		have = append(have, a.IPNet.String())
	}
	for _, want := range []string{"10.98.0.2/24", "fd00:98::2/64"} {
		if !strings.Contains(strings.Join(have, " "), want) {
			t.Errorf("addresses %v, want %s among them", have, want)
		}
	}
	if err := pair.A.Sysctl("net/ipv4/tcp_ecn", "1"); err != nil {
		t.Error(err)
	}
	if err := pair.A.Sysctl("net/ipv4/no_such_setting", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unknown setting: %v", err)
	}
	here, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(string(here), "1024\t65535") {
		t.Error("the test's own namespace was changed")
	}
}
