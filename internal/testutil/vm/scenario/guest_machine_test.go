package scenario

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// paths is a machine with these paths for received packets:
//
//	far ---- nn0, a VLAN on it, WireGuard over it ---- machine ---- br0 ---- container
//	    \---- tun0 ----/                               NAT, proxy            eth0
//
// The daemon is in the machine's namespace.
type paths struct {
	machine, far, container *testbed.NetNS
}

func newPaths(t *testing.T) *paths {
	t.Helper()
	pair := testutil.MustPair(t)
	p := &paths{machine: pair.A, far: pair.B}
	var err error
	p.container, err = testbed.NewNetNS()
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.container.Close() })

	tun, err := relay.Start(p.machine, p.far, "tun0", relay.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tun.Close() })
	for i, n := range []*testbed.NetNS{p.machine, p.far} {
		setUp(t, n, "tun0", fmt.Sprintf("10.90.1.%d/24", i+1))
		vlan := attributes("nn0.7")
		vlan.ParentIndex = device(t, n, testbed.Device).Attrs().Index
		require.NoError(t, n.Netlink().LinkAdd(&netlink.Vlan{LinkAttrs: vlan, VlanId: 7}))
		setUp(t, n, "nn0.7", fmt.Sprintf("10.90.3.%d/24", i+1))
	}
	p.wireguard(t)
	p.bridge(t)
	return p
}

func attributes(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func device(t *testing.T, n *testbed.NetNS, name string) netlink.Link {
	t.Helper()
	link, err := n.Netlink().LinkByName(name)
	require.NoError(t, err, name)
	return link
}

func setUp(t *testing.T, n *testbed.NetNS, name, address string) {
	t.Helper()
	link := device(t, n, name)
	if address != "" {
		a, err := netlink.ParseAddr(address)
		require.NoError(t, err)
		require.NoError(t, n.Netlink().AddrAdd(link, a))
	}
	require.NoError(t, n.Netlink().LinkSetUp(link))
}

// tool runs a program with an input.
func tool(t *testing.T, n *testbed.NetNS, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, n.Start(cmd))
	require.NoError(t, cmd.Wait(), "%q: %s", args, &out)
	return strings.TrimSpace(out.String())
}

// wireguard joins the machine and the far side by a tunnel over nn0.
func (p *paths) wireguard(t *testing.T) {
	t.Helper()
	sides := []*testbed.NetNS{p.machine, p.far}
	var private, public [2]string
	for i, n := range sides {
		private[i] = tool(t, n, "", "wg", "genkey")
		public[i] = tool(t, n, private[i], "wg", "pubkey")
	}
	for i, n := range sides {
		require.NoError(t, n.Netlink().LinkAdd(&netlink.Wireguard{LinkAttrs: attributes("wg0")}))
		tool(t, n, fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51820\n"+
			"[Peer]\nPublicKey = %s\nEndpoint = 10.98.0.%d:51820\nAllowedIPs = 10.90.2.0/24\n",
			private[i], public[1-i], 2-i), "wg", "setconf", "wg0", "/proc/self/fd/0")
		setUp(t, n, "wg0", fmt.Sprintf("10.90.2.%d/24", i+1))
	}
}

// bridge puts the container behind the machine, as Docker does.
func (p *paths) bridge(t *testing.T) {
	t.Helper()
	require.NoError(t, p.machine.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: attributes("br0")}))
	setUp(t, p.machine, "br0", "10.90.4.1/24")
	inside, err := os.Open(p.container.Path())
	require.NoError(t, err)
	defer inside.Close()
	port := attributes("port0")
	port.MasterIndex = device(t, p.machine, "br0").Attrs().Index
	require.NoError(t, p.machine.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: port, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(inside.Fd())),
	}))
	setUp(t, p.machine, "port0", "")
	setUp(t, p.container, "eth0", "10.90.4.2/24")
	require.NoError(t, p.container.Netlink().RouteAdd(&netlink.Route{Gw: net.IPv4(10, 90, 4, 1)}))
	require.NoError(t, p.machine.Sysctl("net/ipv4/ip_forward", "1"))
}

// rules loads the rules of NAT.
func (p *paths) rules(t *testing.T) {
	t.Helper()
	tool(t, p.machine, `
table ip nat {
	chain in {
		type nat hook prerouting priority dstnat
		iifname "nn0" tcp dport 8080 dnat to 10.90.4.2:80
		iifname "nn0" tcp dport 8082 redirect to :8083
	}
	chain out { type nat hook postrouting priority srcnat; ip saddr 10.90.4.0/24 oifname "nn0" masquerade; }
}`, "nft", "-f", "-")
}

// state lists the state that netnice has to restore: devices with their queueing disciplines and filters, pins, and
// the objects that the kernel has loaded.
func (p *paths) state(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for i, n := range []*testbed.NetNS{p.machine, p.far, p.container} {
		links, err := n.Netlink().LinkList()
		require.NoError(t, err)
		for _, l := range links {
			fmt.Fprintf(&out, "%d %s:", i, l.Attrs().Name)
			qdiscs, err := n.Netlink().QdiscList(l)
			require.NoError(t, err)
			for _, q := range qdiscs {
				fmt.Fprintf(&out, " %s", q.Type())
			}
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				filters, err := n.Netlink().FilterList(l, parent)
				require.NoError(t, err)
				fmt.Fprintf(&out, " %d", len(filters))
			}
			fmt.Fprintln(&out)
		}
	}
	fmt.Fprintln(&out, "pins:", netniceState(t))
	programs, maps := 0, 0
	for id := ebpf.ProgramID(0); ; programs++ {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
	}
	for id := ebpf.MapID(0); ; maps++ {
		next, err := ebpf.MapGetNextID(id)
		if err != nil {
			break
		}
		id = next
	}
	fmt.Fprintln(&out, programs, "programs,", maps, "maps")
	return out.String()
}

// modules holds files of kernel modules.
type modules []string

// unload removes the modules from the kernel whose names have one of these prefixes.
func unload(t *testing.T, prefixes ...string) modules {
	t.Helper()
	files, err := filepath.Glob("/lib/modules/*.ko")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Log("nothing is a module of this kernel's: none is unloaded")
		return nil
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(filepath.Base(f), p) })
	})
	require.NotEmpty(t, files)
	inAnyOrder(t, files, func(f string) error {
		return unix.DeleteModule(strings.TrimSuffix(filepath.Base(f), ".ko"), 0)
	})
	return files
}

func (m modules) load(t *testing.T) {
	t.Helper()
	inAnyOrder(t, m, func(f string) error {
		file, err := os.Open(f)
		if err != nil {
			return err
		}
		defer file.Close()
		return unix.FinitModule(int(file.Fd()), "", 0)
	})
}

// inAnyOrder calls do for all files, of which some need others to come first.
func inAnyOrder(t *testing.T, files modules, do func(string) error) {
	t.Helper()
	left := slices.Clone(files)
	for len(left) > 0 {
		var why error
		before := len(left)
		left = slices.DeleteFunc(left, func(f string) bool {
			err := do(f)
			if err != nil {
				why = fmt.Errorf("%s: %w", f, err)
			}
			return err == nil
		})
		require.Less(t, len(left), before, "%v", why)
	}
}
