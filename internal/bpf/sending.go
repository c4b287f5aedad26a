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

// Classes of their own below a node: of what a child sends but TCP, a bit of the
// child's number, and of all that is received.
const (
	ChildDatagrams = 1 << 31
	ChildInflow    = 1 << 61
	// ChildGuarantee and a node's index is what a clock knows of that node's guarantee.
	ChildGuarantee = 1 << 60
)

// Minor numbers of the HTB classes of lanes: see bpf/send_types.h.
const (
	LaneFirst = 0x8000
	LaneOwn   = 0xc000
)

// SendFaultNames are the counters of the send_faults map, by index.
func SendFaultNames() []string {
	return []string{"send_class", "send_device", "send_header", "send_socket"}
}

// Sending is the loaded object that queues what is sent and is no TCP. It shares
// nodes, sockets and clocks with the Object that it was loaded beside; its own
// maps are pinned in the same folder.
type Sending struct {
	sendingObjects
	pins
	base        *Object
	listBuffers eachSocket
}

// sendingMark is the map whose pin says that there is a sending object.
const sendingMark = "sender"

// sendShortHook is who finds a buffer too small that was made so.
const (
	sendShortHook    = "send_short"
	sendShortProgram = "nn_send_short"
)

// LoadSending loads the object for what is sent and is no TCP beside this one.
// Nothing is attached; maps that are pinned already are used as they are.
// Otherwise nothing is pinned until Pin.
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

// IsSending says whether a sending object is pinned in the folder.
func (o *Object) IsSending() bool { return o.isPinned(sendingMark) }

// ListBuffers returns the sockets that are no TCP's of which something waits, or whose
// send buffer is kept small.
func (s *Sending) ListBuffers() ([]BufferRecord, error) {
	if s.listBuffers.ofMap != nil {
		return records[BufferRecord](run(s.listBuffers.ofMap, s.base.Sockets))
	}
	list, err := records[BufferRecord](run(s.listBuffers.files, nil))
	return once(list, func(r BufferRecord) uint64 { return r.Inode }), err
}

// FollowShort has it be noticed that a datagram does not fit in a buffer that was
// made small, while there are such: by a program that every packet meets that is dropped.
func (s *Sending) FollowShort(wanted bool) error {
	p := s.NnSendShort
	if !wanted {
		err := s.Detach(sendShortHook)
		if rest := s.Unpin(sendShortHook); !errors.Is(rest, fs.ErrNotExist) { // a former process's
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

// AttachDevice attaches to what a device in the namespace of the calling thread
// sends. A kernel without tcx (before 6.6) answers ebpf.ErrNotSupported.
func (s *Sending) AttachDevice(ifindex int, name string) error {
	return s.attachedTCX(name, link.TCXOptions{Interface: ifindex, Program: s.NnSendOut, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
}

// Attached says which programs that need no device are attached.
func (s *Sending) Attached() map[string]bool {
	out := map[string]bool{}
	if s.NnSendShort != nil {
		out[sendShortHook] = s.links[sendShortHook] != nil
	}
	return out
}

// SendingPurposes says for people what each hook is for.
func SendingPurposes() map[string]string {
	return map[string]string{
		"send_out":    "finds what is limited among what is sent and is no TCP",
		"send_back":   "sends it on when its turn has come",
		sendShortHook: "whether a buffer that was made small is too small",
	}
}

// Remove detaches everything and removes the pins of this object alone.
func (s *Sending) Remove() error { return errors.Join(s.removePins(), s.Close()) }

// Close lets go of everything and leaves pins and attachments as they are.
func (s *Sending) Close() error {
	return errors.Join(s.closeLinks(), s.listBuffers.Close(), s.sendingObjects.Close())
}
