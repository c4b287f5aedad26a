package bpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// The structs of bpf/send_types.h, as bpf2go made them.
//
//revive:disable:exported
type (
	Outflow    = sendingNnOutflow
	OutflowKey = sendingNnOutflowKey
	SendPlace  = sendingNnSendPlace
	SendSlot   = sendingNnSendSlot
	Lane       = sendingNnLane
	Gate       = sendingNnGate

	BufferRecord = sendingNnBufferRecord
)

//revive:enable:exported

// These numbers select separate classes below a node. ChildDatagrams is a bit of a child's number, for its non-TCP
// egress. ChildInflow stands for all ingress.
const (
	ChildDatagrams = 1 << 31
	ChildInflow    = 1 << 61
	// ChildGuarantee, with a node's index, is the child that holds the state of that node's guarantee at a clock.
	ChildGuarantee = 1 << 60
)

// LaneFirst and LaneOwn are minor numbers of the HTB classes of lanes (per-program classes): see bpf/send_types.h.
const (
	LaneFirst = 0x8000
	LaneOwn   = 0xc000
)

// SendFaultNames are the counters of the send_faults map, by index.
func SendFaultNames() []string {
	return []string{"send_class", "send_device", "send_header", "send_socket"}
}

// Sending is the loaded object that queues non-TCP egress. It shares nodes, sockets and clocks with the Object that it
// was loaded beside. Its own maps are pinned in the same folder.
type Sending struct {
	sendingObjects
	pins
	base        *Object
	listBuffers eachSocket
}

// sendingMark is the map whose pin says that there is a sending object.
const sendingMark = "sender"

// sendShortHook notices when a send buffer that netnice made small is too small for a datagram.
const (
	sendShortHook    = "send_short"
	sendShortProgram = "nn_send_short"
)

// LoadSending loads the object for non-TCP egress beside this one. It attaches nothing, and uses maps that are pinned
// already as they are. Otherwise nothing is pinned until Pin.
func (o *Object) LoadSending() (*Sending, error) {
	spec, err := loadSending()
	if err != nil {
		return nil, fmt.Errorf("read the object for what is sent: %w", err)
	}
	s := &Sending{base: o, pins: newPins(o.opts.PinDir, sendingMark)}
	coll, err := o.loadBeside(spec, &s.pins)
	if err != nil {
		return nil, fmt.Errorf("load the object for what is sent: %w", err)
	}
	p, m := coll.Programs, coll.Maps
	s.sendingPrograms = sendingPrograms{
		NnSendOut: p["nn_send_out"], NnSendBack: p["nn_send_back"], NnSendShort: p["nn_send_short"],
	}
	s.listBuffers = eachSocketOf(p, "list_buffers")
	s.sendingMaps = sendingMaps{
		Sender: m["sender"], SendDevices: m["send_devices"], SendSlots: m["send_slots"],
		Outflows: m["outflows"], Lanes: m["lanes"], Gates: m["gates"], SendFaults: m["send_faults"],
	}
	return s, nil
}

// IsSending reports whether a sending object is pinned in the folder.
func (o *Object) IsSending() bool { return o.isPinned(sendingMark) }

// ListBuffers returns the non-TCP sockets that have packets in a queue, or whose send buffer is kept small.
func (s *Sending) ListBuffers() ([]BufferRecord, error) {
	if s.listBuffers.ofMap != nil {
		return records[BufferRecord](run(s.listBuffers.ofMap, s.base.Sockets))
	}
	list, err := records[BufferRecord](run(s.listBuffers.files, nil))
	return once(list, func(r BufferRecord) uint64 { return r.Inode }), err
}

// FollowShort attaches or detaches the program that notices a datagram that does not fit into a send buffer that
// netnice made small. The program runs for every packet that the kernel drops, so it is wanted only while such buffers
// exist and datagrams are lost.
func (s *Sending) FollowShort(wanted bool) error {
	p := s.NnSendShort
	if !wanted {
		err := s.Detach(sendShortHook)
		if rest := s.Unpin(sendShortHook); !errors.Is(rest, fs.ErrNotExist) { // pinned by an earlier process
			err = errors.Join(err, rest)
		}
		return err
	}
	if p == nil || s.links[sendShortHook] != nil {
		return nil
	}
	err := s.attached(sendShortHook, p, false, func() (link.Link, error) { return attachHook("", 0, p) })
	if err != nil {
		return fmt.Errorf("attach %s: %w", sendShortHook, err)
	}
	return nil
}

// AttachDevice attaches the program to the egress of a device in the network namespace of the calling thread. The error
// is ebpf.ErrNotSupported on a kernel without tcx (before 6.6).
func (s *Sending) AttachDevice(ifindex int, name string) error {
	return s.attachedTCX(name, link.TCXOptions{Interface: ifindex, Program: s.NnSendOut, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
}

// Attached returns the programs that need no device, and whether each is attached.
func (s *Sending) Attached() map[string]bool {
	out := map[string]bool{}
	if s.NnSendShort != nil {
		out[sendShortHook] = s.links[sendShortHook] != nil
	}
	return out
}

// SendingPurposes returns for each hook what it is for, in words for people.
func SendingPurposes() map[string]string {
	return map[string]string{
		"send_out":    "finds what is limited among non-TCP egress",
		"send_back":   "sends it on when its turn has come",
		sendShortHook: "whether a buffer that was made small is too small",
	}
}

// Remove detaches everything and removes the pins of this object alone.
func (s *Sending) Remove() error { return errors.Join(s.removePins(), s.Close()) }

// Close closes everything that the object holds, and leaves pins and attachments as they are.
func (s *Sending) Close() error {
	return errors.Join(s.closeLinks(), s.listBuffers.Close(), s.sendingObjects.Close())
}
