package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Meter counts the IP bytes, headers of every segment included, that leave a device: over TCP by destination port, and
// all together.
// The kernel itself counts, into bins of time, so no process has to be awake. Data that a receiver has not read, or
// has yet to receive, do not affect the figures.
type Meter struct {
	begin Instant
	first uint16 // port
	ports int
	fd    int
	prog  *ebpf.Program
	bins  *ebpf.Map
	mem   *ebpf.Memory
}

const (
	meterBin  = 10 * time.Millisecond
	meterBins = 24000 // 4 minutes
	sizeofBin = 8
	totals    = 2 // entries behind the bins: bytes and segments
)

// StartMeter counts the bytes that leave a device of the namespace to these ports, for four minutes at most. Close
// ends it.
func StartMeter(n *NetNS, device string, first uint16, ports int) (*Meter, error) {
	m := &Meter{begin: Now(), first: first, ports: ports, fd: -1}
	if err := m.start(n, device); err != nil {
		return nil, errors.Join(fmt.Errorf("count what leaves %s: %w", device, err), m.Close())
	}
	return m, nil
}

func (m *Meter) start(n *NetNS, device string) error {
	link, err := n.link.LinkByName(device)
	if err != nil {
		return err
	}
	m.bins, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "meter", Type: ebpf.Array, KeySize: 4, ValueSize: sizeofBin,
		MaxEntries: uint32(m.ports*meterBins + totals), Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return err
	}
	if m.mem, err = m.bins.Memory(); err != nil {
		return err
	}
	m.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "meter", Type: ebpf.SocketFilter, License: "GPL", Instructions: m.program(),
	})
	if err != nil {
		return err
	}
	// A packet socket sees the packets that the device takes. Its filter delivers none of them to the socket.
	return n.Do(func() error {
		if m.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		const all = unix.ETH_P_ALL << 8 // in network order
		return errors.Join(
			unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, m.prog.FD()),
			unix.Bind(m.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}))
	})
}

// program returns the filter: it adds a packet's bytes to the total, and to the bin of its port and of the present time.
func (m *Meter) program() asm.Instructions {
	const ( // in struct __sk_buff
		length, packetType, protocol, segments = 0, 4, 16, 164
	)
	const (
		v4, v6          = unix.ETH_P_IP&0xff<<8 | unix.ETH_P_IP>>8, unix.ETH_P_IPV6&0xff<<8 | unix.ETH_P_IPV6>>8
		v6Options       = 0   // reports on groups have them
		v6Report        = 130 // the first of the kernel's own messages
		v6Redirect      = 143 // the last of them
		notCounted      = -1
		payload, number = -8, -16 // on the stack
	)
	const packet, bytes, header, port = asm.R6, asm.R7, asm.R8, asm.R9
	code := asm.Instructions{
		asm.Mov.Reg(packet, asm.R1),
		asm.LoadMem(asm.R0, packet, packetType, asm.Word),
		asm.JNE.Imm(asm.R0, unix.PACKET_OUTGOING, "out"),
		asm.LoadMem(bytes, packet, length, asm.Word),
		asm.LoadMem(asm.R0, packet, protocol, asm.Word), // in network order
		asm.JEq.Imm(asm.R0, v6, "six"),
		asm.JNE.Imm(asm.R0, v4, "out"),
		asm.LoadAbs(0, asm.Byte),
		asm.Mov.Reg(header, asm.R0),
		asm.And.Imm(header, 15),
		asm.LSh.Imm(header, 2),
		asm.LoadAbs(9, asm.Byte), // protocol
		asm.Ja.Label("protocol"),
		asm.Mov.Imm(header, 40).WithSymbol("six"),
		asm.LoadAbs(6, asm.Byte), // next header
		asm.JEq.Imm(asm.R0, v6Options, "out"),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_ICMPV6, "protocol"),
		asm.LoadAbs(40, asm.Byte), // type
		asm.JLT.Imm(asm.R0, v6Report, "other"),
		asm.JLE.Imm(asm.R0, v6Redirect, "out"),
		asm.Mov.Imm(port, notCounted).WithSymbol("other"),
		asm.Ja.Label("total"),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_TCP, "tcp").WithSymbol("protocol"),
		asm.Mov.Imm(port, notCounted),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "total"),
		asm.Add.Imm(header, 8),
		asm.Ja.Label("total"),
		asm.LoadInd(asm.R0, header, 2, asm.Half).WithSymbol("tcp"), // destination
		asm.Mov.Reg(port, asm.R0),
		asm.Sub.Imm(port, int32(m.first)),
		asm.LoadInd(asm.R0, header, 12, asm.Byte), // data offset
		asm.RSh.Imm(asm.R0, 4),
		asm.LSh.Imm(asm.R0, 2),
		asm.Add.Reg(header, asm.R0),
		// A large chunk that the device takes leaves on a wire as segments.
		asm.LoadMem(asm.R0, packet, segments, asm.Word).WithSymbol("total"),
		asm.JGT.Imm(asm.R0, 1, "chunk"),
		asm.Mov.Imm(asm.R0, 1),
		asm.StoreMem(asm.RFP, number, asm.R0, asm.DWord).WithSymbol("chunk"),
		asm.Sub.Imm(asm.R0, 1),
		asm.Mul.Reg(asm.R0, header),
		asm.Add.Reg(bytes, asm.R0),
		asm.StoreMem(asm.RFP, payload, bytes, asm.DWord),
	}
	code = append(append(code, m.addTotal(0, payload)...), m.addTotal(1, number)...)
	return append(code, asm.Instructions{
		asm.JGE.Imm(port, int32(m.ports), "out"), // without sign
		asm.FnKtimeGetNs.Call(),
		asm.LoadImm(asm.R1, int64(m.begin), asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R1),
		asm.Div.Imm(asm.R0, int32(meterBin)),
		asm.JGE.Imm(asm.R0, meterBins, "out"),
		asm.Mul.Imm(port, meterBins),
		asm.Add.Reg(port, asm.R0),
		asm.StoreMem(asm.RFP, -4, port, asm.Word),
		asm.LoadMapPtr(asm.R1, m.bins.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreXAdd(asm.R0, bytes, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}...)
}

// addTotal returns instructions that add what is at a place of the stack to a total.
func (m *Meter) addTotal(total int, place int16) asm.Instructions {
	const key = -20
	skip := fmt.Sprintf("added %d", total)
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(m.ports*meterBins+total)),
		asm.StoreMem(asm.RFP, key, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, m.bins.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, skip),
		asm.LoadMem(asm.R1, asm.RFP, place, asm.DWord),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(skip),
	}
}

// Total returns the IP bytes that have left the device so far, with headers for each segment, and the segments.
// Messages by which IPv6 finds neighbours, routers and groups are left out.
func (m *Meter) Total() (bytes, count uint64, err error) {
	var buf [totals * sizeofBin]byte
	if _, err := m.mem.ReadAt(buf[:], int64(m.ports*meterBins*sizeofBin)); err != nil {
		return 0, 0, fmt.Errorf("read the meter: %w", err)
	}
	return binary.NativeEndian.Uint64(buf[:]), binary.NativeEndian.Uint64(buf[sizeofBin:]), nil
}

// Rate returns IP bytes per second to a port between two instants, both in the
// past and within the time of the meter.
func (m *Meter) Rate(port uint16, from, to Instant) (float64, error) {
	if port < m.first || int(port-m.first) >= m.ports || from < m.begin || to <= from ||
		to >= m.begin.Add(meterBins*meterBin) {
		return 0, fmt.Errorf("port %d from %v to %v is not on the meter", port, from.Sub(m.begin), to.Sub(m.begin))
	}
	low, high := int(from.Sub(m.begin)/meterBin), int(to.Sub(m.begin)/meterBin)
	buf := make([]byte, (high-low+1)*sizeofBin)
	if _, err := m.mem.ReadAt(buf, int64((int(port-m.first)*meterBins+low)*sizeofBin)); err != nil {
		return 0, fmt.Errorf("read the meter: %w", err)
	}
	sum := 0.0
	for i := low; i <= high; i++ {
		begin := m.begin.Add(time.Duration(i) * meterBin)
		part := min(to, begin.Add(meterBin)).Sub(max(from, begin)) // part of the bin
		n := binary.NativeEndian.Uint64(buf[(i-low)*sizeofBin:])
		sum += float64(n) * float64(part) / float64(meterBin)
	}
	return sum / to.Sub(from).Seconds(), nil
}

// Close ends the count. The figures cannot be read afterwards.
func (m *Meter) Close() error {
	var errs []error
	if m.fd >= 0 {
		errs = append(errs, unix.Close(m.fd))
	}
	if m.prog != nil {
		errs = append(errs, m.prog.Close())
	}
	if m.bins != nil {
		errs = append(errs, m.bins.Close())
	}
	return errors.Join(errs...)
}
