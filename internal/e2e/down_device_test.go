package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file limit ingress on stacked devices, and on devices with programs of other software.

// add makes a device with an address in a namespace and sets it up. It skips the test where the kernel has no
// devices of that type.
func add(t *testing.T, n *testbed.NetNS, link netlink.Link, address string) {
	t.Helper()
	if err := n.Netlink().LinkAdd(link); err != nil {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatalf("make a device of kind %s: %v", link.Type(), err)
		}
		t.Skipf("this kernel has no %s devices: %v", link.Type(), err)
	}
	up(t, n, link.Attrs().Name, address)
}

// up gives a device an address and sets it up.
func up(t *testing.T, n *testbed.NetNS, name, address string) {
	t.Helper()
	link, err := n.Netlink().LinkByName(name)
	if err == nil && address != "" {
		ip, prefix, bad := net.ParseCIDR(address)
		if err = bad; err == nil {
			err = n.Netlink().AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: prefix.Mask}})
		}
	}
	if err == nil {
		err = n.Netlink().LinkSetUp(link)
	}
	if err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// index returns the index of a device in a namespace.
func index(t *testing.T, n *testbed.NetNS, name string) int {
	t.Helper()
	link, err := n.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

// addVxlan makes a tunnel to the other namespace.
func addVxlan(t *testing.T, n *testbed.NetNS, here, there string) {
	t.Helper()
	add(t, n, &netlink.Vxlan{
		LinkAttrs: named("s0"), VxlanId: 7, Port: 4789, Group: net.ParseIP(there), VtepDevIndex: index(t, n, testbed.Device),
	}, here)
}

// stacks holds functions that put the device s0, with an address, on top of the namespace's device.
var stacks = map[string]func(t *testing.T, n *testbed.NetNS, here, there string){
	"vlan": func(t *testing.T, n *testbed.NetNS, here, _ string) {
		a := named("s0")
		a.ParentIndex = index(t, n, testbed.Device)
		add(t, n, &netlink.Vlan{LinkAttrs: a, VlanId: 7}, here)
	},
	"macvlan": func(t *testing.T, n *testbed.NetNS, here, _ string) {
		a := named("s0")
		a.ParentIndex = index(t, n, testbed.Device)
		// The device below must not answer for the address of s0.
		if err := n.Sysctl("net/ipv4/conf/all/arp_ignore", "1"); err != nil {
			t.Fatal(err)
		}
		add(t, n, &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}, here)
	},
	"vxlan": addVxlan,
	"bridge": func(t *testing.T, n *testbed.NetNS, here, _ string) {
		add(t, n, &netlink.Bridge{LinkAttrs: named("s0")}, here)
		nn0, err := n.Netlink().LinkByName(testbed.Device)
		if err == nil {
			err = n.Netlink().LinkSetMasterByIndex(nn0, index(t, n, "s0"))
		}
		if err != nil {
			t.Fatal(err)
		}
	},
}

// once checks that received traffic at a limit is counted once.
func (f *inbound) once(subject string, limit float64, rx *testbed.Receiver, per float64, ports ...uint16) {
	f.t.Helper()
	let := f.letThrough(subject) // over the past span
	now := testbed.Now()
	got := 0.0
	for _, p := range ports {
		got += rx.Goodput(p, now.Add(-span), now.Add(-20*time.Millisecond)) * per
	}
	f.near("received", now.Add(-span), got, limit, 0.05)
	f.near("counted", now.Add(-span), let, limit, 0.02)
}

// Devices are stacked on other devices of the namespace: packets arrive through both.
func TestDownStacked(t *testing.T) {
	t.Parallel()
	const limit = 5e6
	for name, stack := range testutil.SubsetOf(stacks, "vxlan", "bridge") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			stack(t, f.A, "10.97.0.1/24", f.B4.String())
			stack(t, f.B, "10.97.0.2/24", f.A4.String())
			f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
			x := f.sendOver("10.97.0.1", 5001)
			defer func() { _, _ = x.Stop() }()
			time.Sleep(time.Second)
			per := perByte
			if name == "vxlan" {
				per = 1 + 52.0/1398 // counted inside the tunnel
			}
			f.once("pid:"+itoa(f.rx.PID()), limit, f.rx, per, 5001)
			f.faultless()
		})
	}
}

// sendOver starts a process in B that sends to an address.
func (f *inbound) sendOver(address string, port uint16) *testbed.Sender {
	f.t.Helper()
	x, err := testbed.StartSender(f.B, testbed.SenderConfig{To: fmt.Sprintf("%s:%d", address, port), Connections: 2})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = x.Close() })
	if _, err := x.Start(); err != nil {
		f.t.Fatal(err)
	}
	return x
}

// A container is behind the machine's bridge. A user's limit covers the container and the machine together, and
// counts packets that the machine forwards to the container once.
func TestDownContainer(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestContainer and TestDownElsewhere")
	t.Parallel()
	spare := newUsers()
	user := spare + 12 // a user of this test alone
	s := newStage(t)
	f := newInbound(s, testutil.MustPair(t)) // A stands for the machine
	f.ports += 16
	here := f.reader(user)
	inside := newNetNS(t)
	g := &inbound{field: &field{stage: s, Pair: &testbed.Pair{A: inside, B: f.B}, ports: f.ports + 16}}
	file, err := os.Open(inside.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	add(t, f.A, &netlink.Bridge{LinkAttrs: named("br0")}, "10.99.0.1/24")
	port := named("port0")
	port.MasterIndex = index(t, f.A, "br0")
	add(t, f.A, &netlink.Veth{LinkAttrs: port, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(file.Fd()))}, "")
	up(t, inside, "eth0", "10.99.0.2/24")
	if err := f.A.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	for n, via := range map[*testbed.NetNS]net.IP{f.B: f.A4.AsSlice(), inside: net.IPv4(10, 99, 0, 1)} {
		if err := n.Netlink().RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 96, 0, 0), Mask: net.CIDRMask(12, 32)}, Gw: via}); err != nil {
			t.Fatal(err)
		}
	}
	g.rx = g.reader(user)
	f.must("set", "--user", itoa(user), "--down", "10MB/s")
	x, y := f.sendOver(f.A4.String(), 5017), f.sendOver("10.99.0.2", 5033)
	defer func() { _, _ = x.Stop() }()
	defer func() { _, _ = y.Stop() }()
	time.Sleep(time.Second)
	let := f.letThrough("user:" + itoa(user))
	now := testbed.Now()
	from, to := now.Add(-span), now.Add(-20*time.Millisecond)
	machine, container := here.Goodput(5017, from, to)*perByte, g.rx.Goodput(5033, from, to)*perByte
	t.Logf("the machine %.2f MB/s, the container %.2f MB/s", machine/1e6, container/1e6)
	f.near("received", from, machine+container, 10e6, 0.05)
	f.near("counted", from, let, 10e6, 0.03)
	f.lost(y, 20, 40*time.Millisecond)
	f.faultless()
}

// A program of other software on the same device sees each packet once, and stays attached.
func TestDownBesideProgram(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownStacked")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	// seen[0] += skb->len for IPv4; then the kernel runs the next program.
	counts, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, 16, asm.Word), // protocol
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, seen.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.JNE.Imm(asm.R7, 0x0008, "out"),
		asm.StoreXAdd(asm.R0, asm.R6, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	nl, nn0 := f.A.Netlink(), index(t, f.A, testbed.Device)
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: nn0, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := nl.QdiscAdd(clsact); err != nil {
		t.Fatal(err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: nn0, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 3, Protocol: unix.ETH_P_ALL, Priority: 5},
		Fd:          counts.FD(), Name: "somebody", DirectAction: true,
	}
	if err := nl.FilterAdd(filter); err != nil {
		t.Fatal(err)
	}
	look := func() (n uint64) {
		if err := seen.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
	f.sendTo(5001, false, testbed.SenderConfig{Connections: 2})
	time.Sleep(time.Second)
	before, from := look(), testbed.Now()
	f.receives("in", from.Add(-settle), 5e6, perByte, 5001)
	rate := float64(look()-before) / testbed.Now().Sub(from).Seconds()
	f.near("seen by the other", from, rate, 5e6, 0.05) // large segments have few headers
	f.must("down")
	<-f.daemon.ended
	list, err := nl.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: nn0}}, netlink.HANDLE_MIN_INGRESS)
	if err != nil || len(list) != 1 || list[0].(*netlink.BpfFilter).Name != "somebody" {
		t.Errorf("filters are %+v (%v)", list, err)
	}
}

// A socket that is bound to a device accepts only packets from that device. Packets that have left the queue no
// longer come from there. Every limit on the socket's path holds all the same.
func TestDownBoundToDevice(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	for _, away := range testutil.Subset([]bool{false, true}, 1) {
		t.Run(fmt.Sprintf("elsewhere=%t", away), func(t *testing.T) {
			t.Parallel()
			user := spare + 13 // a user of this test alone
			if away {
				user++
			}
			p := testutil.MustPair(t)
			home := p.A
			if away {
				home = newNetNS(t)
			}
			f := newInboundFrom(newStage(t), p, home)
			rx := f.python(options{in: f.A, uid: user}, `
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, 25, b"nn0")  # SO_BINDTODEVICE
say("ready")
wait()
s.connect((sys.argv[1], 8080))
s.sendall(b"GET /data HTTP/1.0\r\n\r\n")
while s.recv(1 << 16):
    pass
`, f.B4.String())
			rx.read("ready")
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/data", make([]byte, 40<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			f.python(options{in: f.B}, fileServer, dir).read("ready")
			f.must("set", "--user", itoa(user), "--down", "4MB/s")
			f.must("set", "--pid", rx.pid(), "--down", "50MB/s") // a higher limit inside
			rx.tell("go")
			time.Sleep(time.Second)
			from := testbed.Now()
			f.near("the process", from, f.letThrough("pid:"+rx.pid()), 4e6, 0.03)
			f.near("the user", from, f.letThrough("user:"+itoa(user)), 4e6, 0.03)
			f.faultless()
		})
	}
}
