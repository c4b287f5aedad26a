package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Adverse makes the path of some TCP ports of a namespace adverse, in both directions. Every packet of a port has a
// number. The numbers alone choose the packets that suffer, so the same traffic suffers the same. SYNs never do.
type Adverse struct {
	ns       *NetNS
	numbers  *ebpf.Map
	programs []*ebpf.Program
	held     int // a packet socket at the second end of the pair, which takes what is held back
	out      int // a packet socket of Device
	phase    uint64
	device   netlink.Link
	enters   netlink.Link // the first end of the pair
	stop     chan struct{}
	stopped  sync.WaitGroup
}

// These are the ports behind the first one, in their order.
const (
	// AdverseHoles is a port whose clients receive data with holes that nothing ever fills. Its data in every second
	// stripe of sequence numbers get lost, also when they are sent again. One packet in 64 for this port gets lost.
	AdverseHoles = iota
	// AdverseReorders is a port with late packets: every fifth that it sends, and every sixteenth that it receives, comes
	// 4 ms late.
	AdverseReorders
	// AdverseDuplicates is a port that duplicates: every third packet that it sends comes four times.
	AdverseDuplicates
	// AdversePorts is the number of these ports.
	AdversePorts
)

const (
	adverseMark   = 0x6e6e // the mark of packets that have suffered already
	adverseLate   = 4 * time.Millisecond
	adverseStripe = 7 // bits: stripes of 128 sequence numbers

	lostOf, lateOf, lateInOf, copiedOf = 64, 5, 16, 3

	heldDevice, takenDevice = "held0", "held1"

	ethernetHeader = 14
)

// StartAdverse makes the path of groups of AdversePorts ports of the namespace adverse; groups holds the first port of
// each. phase chooses the numbers of the packets that suffer. Close ends it.
func StartAdverse(n *NetNS, phase uint64, groups ...uint16) (*Adverse, error) {
	a := &Adverse{ns: n, phase: phase, held: -1, out: -1, stop: make(chan struct{})}
	if err := a.start(groups); err != nil {
		return nil, errors.Join(fmt.Errorf("make the path of ports %v adverse: %w", groups, err), a.Close())
	}
	return a, nil
}

func (a *Adverse) start(groups []uint16) error {
	var err error
	if a.device, err = a.ns.link.LinkByName(Device); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = heldDevice, 1500, 1000
	if err := a.ns.link.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: takenDevice, PeerMTU: 1500}); err != nil {
		return fmt.Errorf("add veth pair: %w", err)
	}
	if a.enters, err = a.ns.link.LinkByName(heldDevice); err != nil {
		return err
	}
	taken, err := a.ns.link.LinkByName(takenDevice)
	if err != nil {
		return err
	}
	if err := errors.Join(a.ns.link.LinkSetUp(a.enters), a.ns.link.LinkSetUp(taken)); err != nil {
		return err
	}
	if a.held, err = a.packetSocket(taken, unix.ETH_P_ALL); err != nil {
		return err
	}
	if a.out, err = a.packetSocket(a.device, 0); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(a.out, unix.SOL_SOCKET, unix.SO_MARK, adverseMark); err != nil {
		return err
	}
	a.numbers, err = ebpf.NewMap(&ebpf.MapSpec{Name: "adverse", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2 * AdversePorts})
	if err != nil {
		return err
	}
	if err := a.ns.link.QdiscAdd(a.clsact()); err != nil {
		return err
	}
	for _, egress := range []bool{true, false} {
		if err := a.attach(groups, egress); err != nil {
			return err
		}
	}
	a.stopped.Add(1)
	go a.deliver()
	return nil
}

func (a *Adverse) clsact() *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: a.device.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// packetSocket returns a packet socket whose frames have a header that says what their checksums lack and how they are
// segmented: a virtual device leaves both to the next one.
func (a *Adverse) packetSocket(link netlink.Link, protocol uint16) (fd int, err error) {
	err = a.ns.Do(func() error {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: link.Attrs().Index}))
	})
	return fd, err
}

func (a *Adverse) attach(groups []uint16, egress bool) error {
	name, parent := "adverse_in", uint32(netlink.HANDLE_MIN_INGRESS)
	if egress {
		name, parent = "adverse_out", netlink.HANDLE_MIN_EGRESS
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: a.program(groups, egress)})
	if err != nil {
		return err
	}
	a.programs = append(a.programs, program)
	return a.ns.link.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: a.device.Attrs().Index, Parent: parent, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          program.FD(), Name: name, DirectAction: true,
	})
}

// These are the registers of the classifiers.
const adversePacket, adverseTCP, adverseKind, adverseNumber = asm.R6, asm.R7, asm.R8, asm.R9

// These are fields of struct __sk_buff.
const skbLength, skbMark = 0, 8

// program returns the classifier of a direction.
func (a *Adverse) program(groups []uint16, egress bool) asm.Instructions {
	const ( // actions; the sender of a packet that is stolen believes that it has left
		ok, shot, stolen = 0, 2, 4
	)
	const packet, tcp, kind, number = adversePacket, adverseTCP, adverseKind, adverseNumber
	list := append(a.parse(groups, egress), a.count(egress)...)
	list = append(list,
		asm.JEq.Imm(kind, AdverseReorders, "reorders"),
		asm.JEq.Imm(kind, AdverseDuplicates, "duplicates"))
	every := func(n int32) asm.Instructions { // goes on with one packet of n
		return asm.Instructions{asm.Mod.Imm(number, n), asm.JNE.Imm(number, 0, "out")}
	}
	late := int32(lateInOf)
	if egress {
		late = lateOf
		list = append(list,
			// Without data a packet acknowledges only.
			asm.LoadInd(asm.R0, tcp, ethernetHeader+12, asm.Byte), // data offset
			asm.RSh.Imm(asm.R0, 4),
			asm.LSh.Imm(asm.R0, 2),
			asm.Add.Imm(asm.R0, ethernetHeader),
			asm.Mov.Reg(number, tcp),
			asm.Add.Reg(number, asm.R0),
			asm.LoadMem(asm.R0, packet, skbLength, asm.Word),
			asm.JLE.Reg(asm.R0, number, "out"),
			asm.LoadInd(asm.R0, tcp, ethernetHeader+4, asm.Word), // sequence number
			asm.RSh.Imm(asm.R0, adverseStripe),
			asm.And.Imm(asm.R0, 1),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R0, stolen),
			asm.Return(),
		)
	} else {
		list = append(append(list, every(lostOf)...), asm.Mov.Imm(asm.R0, shot), asm.Return())
	}
	reorders := append(every(late),
		asm.Mov.Imm(asm.R1, int32(a.enters.Attrs().Index)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return())
	reorders[0] = reorders[0].WithSymbol("reorders")
	list = append(list, reorders...)
	if egress {
		duplicates := every(copiedOf)
		duplicates[0] = duplicates[0].WithSymbol("duplicates")
		list = append(append(list, duplicates...),
			asm.Mov.Imm(asm.R1, adverseMark),
			asm.StoreMem(packet, skbMark, asm.R1, asm.Word))
		for range 3 {
			list = append(list,
				asm.Mov.Reg(asm.R1, packet),
				asm.Mov.Imm(asm.R2, int32(a.device.Attrs().Index)),
				asm.Mov.Imm(asm.R3, 0),
				asm.FnCloneRedirect.Call())
		}
	} else {
		list = append(list, asm.Mov.Imm(asm.R0, ok).WithSymbol("duplicates"), asm.Return())
	}
	return append(list, asm.Mov.Imm(asm.R0, ok).WithSymbol("out"), asm.Return())
}

// parse finds the TCP header and the kind of the port of a packet, and lets all others pass.
func (a *Adverse) parse(groups []uint16, egress bool) asm.Instructions {
	const packet, tcp, kind = adversePacket, adverseTCP, adverseKind
	port := int32(2) // the destination
	if egress {
		port = 0
	}
	list := asm.Instructions{
		asm.Mov.Reg(packet, asm.R1),
		asm.LoadMem(asm.R0, packet, skbMark, asm.Word),
		asm.JEq.Imm(asm.R0, adverseMark, "out"),
		asm.LoadMem(asm.R0, packet, skbLength, asm.Word),
		asm.JLT.Imm(asm.R0, ethernetHeader+40, "out"),
		asm.LoadAbs(ethernetHeader, asm.Byte),
		asm.Mov.Reg(tcp, asm.R0),
		asm.RSh.Imm(asm.R0, 4),
		asm.JEq.Imm(asm.R0, 6, "six"),
		asm.JNE.Imm(asm.R0, 4, "out"),
		asm.And.Imm(tcp, 15),
		asm.LSh.Imm(tcp, 2),
		asm.LoadAbs(ethernetHeader+9, asm.Byte), // protocol
		asm.Ja.Label("protocol"),
		asm.Mov.Imm(tcp, 40).WithSymbol("six"),
		asm.LoadAbs(ethernetHeader+6, asm.Byte), // next header
		asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, "out").WithSymbol("protocol"),
		asm.LoadInd(asm.R0, tcp, ethernetHeader+13, asm.Byte), // flags
		asm.And.Imm(asm.R0, 2),
		asm.JNE.Imm(asm.R0, 0, "out"), // SYN
		asm.LoadInd(asm.R0, tcp, ethernetHeader+port, asm.Half),
	}
	for _, first := range groups {
		list = append(list,
			asm.Mov.Reg(kind, asm.R0),
			asm.Sub.Imm(kind, int32(first)),
			asm.JLT.Imm(kind, AdversePorts, "number")) // without sign
	}
	return append(list, asm.Ja.Label("out"))
}

// count gives the packet its number.
func (a *Adverse) count(egress bool) asm.Instructions {
	const scratch = -4
	first := int32(AdversePorts) // the first number of this direction
	if egress {
		first = 0
	}
	return asm.Instructions{
		asm.Mov.Reg(asm.R0, adverseKind).WithSymbol("number"),
		asm.Add.Imm(asm.R0, first),
		asm.StoreMem(asm.RFP, scratch, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, a.numbers.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, scratch),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(adverseNumber, asm.R0, 0, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.LoadImm(asm.R1, int64(a.phase%(1<<32)), asm.DWord),
		asm.Add.Reg(adverseNumber, asm.R1),
	}
}

// deliver lets packets that are held back go on, each after a while.
func (a *Adverse) deliver() {
	defer a.stopped.Done()
	var late sync.WaitGroup
	defer late.Wait()
	frame := make([]byte, 1<<17)
	for {
		select {
		case <-a.stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(a.held, frame, 0)
		if err != nil || n < vnetHeader+ethernetHeader {
			continue // none has come for a while
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		packet := bytes.Clone(frame[:n])
		late.Add(1)
		time.AfterFunc(adverseLate, func() {
			defer late.Done()
			a.forward(packet)
		})
	}
}

// vnetHeader is the size of the header of a frame of a packet socket.
const vnetHeader = 10

// forward lets a packet go on. One that had come to Device comes to the namespace by the pair.
func (a *Adverse) forward(packet []byte) {
	to := packet[vnetHeader : vnetHeader+6]
	fd := a.out
	if bytes.Equal(to, a.device.Attrs().HardwareAddr) {
		fd = a.held
		copy(to, a.enters.Attrs().HardwareAddr)
	}
	_, _ = unix.Write(fd, packet) // a packet that cannot go on is lost
}

// Numbers returns how many packets of a kind of port have left it and have come to it.
func (a *Adverse) Numbers(kind uint32) (left, came uint64, err error) {
	err = errors.Join(a.numbers.Lookup(kind, &left), a.numbers.Lookup(AdversePorts+kind, &came))
	return left, came, err
}

// Close lets all packets pass again.
func (a *Adverse) Close() error {
	var errs []error
	if len(a.programs) > 0 {
		errs = append(errs, a.ns.link.QdiscDel(a.clsact()))
	}
	close(a.stop)
	a.stopped.Wait()
	for _, fd := range []int{a.held, a.out} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	for _, p := range a.programs {
		errs = append(errs, p.Close())
	}
	if a.numbers != nil {
		errs = append(errs, a.numbers.Close())
	}
	if a.enters != nil {
		errs = append(errs, a.ns.link.LinkDel(a.enters))
	}
	return errors.Join(errs...)
}
