package bpf

import (
	"errors"
	"fmt"

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

	BufferRecord = sendingNnBufferRecord
)

//revive:enable:exported

// Classes of their own below a node: of what a child sends but TCP, a bit of the
// child's number, and of all that is received.
const (
	ChildDatagrams = 1 << 31
	ChildInflow    = 1 << 61
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
	base *Object
}

// sendingMark is the map whose pin says that there is a sending object.
const sendingMark = "sender"

// sendUserHook is who uses a socket, where that tracepoint is there.
const (
	sendUserHook    = "send_user"
	sendUserProgram = "nn_send_user_tp"
)

// LoadSending loads the object for what is sent and is no TCP beside this one.
// Nothing is attached; maps that are pinned already are used as they are.
// Otherwise nothing is pinned until Pin.
func (o *Object) LoadSending() (*Sending, error) {
	spec, err := loadSending()
	if err != nil {
		return nil, fmt.Errorf("read the object for what is sent: %w", err)
	}
	delete(spec.Programs, sendUserProgram) // which takes its time: see AttachUser
	s := &Sending{base: o, pins: newPins(o.opts.PinDir, sendingMark)}
	coll, err := o.loadBeside(spec, &s.pins)
	if err != nil {
		return nil, fmt.Errorf("load the object for what is sent: %w", err)
	}
	p, m := coll.Programs, coll.Maps
	s.sendingPrograms = sendingPrograms{
		NnSendOut: p["nn_send_out"], NnSendBack: p["nn_send_back"], NnListBuffers: p["nn_list_buffers"],
	}
	s.sendingMaps = sendingMaps{
		Sender: m["sender"], SendDevices: m["send_devices"], SendSlots: m["send_slots"],
		Outflows: m["outflows"], Lanes: m["lanes"], SendFaults: m["send_faults"],
	}
	return s, nil
}

// IsSending says whether a sending object is pinned in the folder.
func (o *Object) IsSending() bool { return o.isPinned(sendingMark) }

// LoadUser loads what tells who uses a socket that another made: it takes as long
// as all the rest, and only reads this object. nil where there is no tracepoint
// for it (before 6.3): the other object attaches what those kernels have.
func (s *Sending) LoadUser() (*ebpf.Program, error) {
	if s.base.missing[sendUserProgram] {
		return nil, nil
	}
	spec, err := loadSending()
	if err != nil {
		return nil, fmt.Errorf("read the object for what is sent: %w", err)
	}
	for name := range spec.Programs {
		if name != sendUserProgram {
			delete(spec.Programs, name)
		}
	}
	// Of maps it has the shared ones alone: nothing is pinned here, for the rest
	// may be going meanwhile.
	shared := s.base.shared()
	for name := range spec.Maps {
		if shared[name] == nil && name[0] != '.' {
			delete(spec.Maps, name)
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", sendUserProgram, err)
	}
	p := coll.DetachProgram(sendUserProgram)
	coll.Close() // its maps are further descriptors
	return p, nil
}

// ListBuffers returns the sockets that are no TCP's of which something waits, or whose
// send buffer is kept small.
func (s *Sending) ListBuffers() ([]BufferRecord, error) {
	return records[BufferRecord](run(s.NnListBuffers, s.base.Sockets))
}

// KeepUser keeps what LoadUser has loaded.
func (s *Sending) KeepUser(p *ebpf.Program) { s.NnSendUserTp = p }

// AttachUser attaches that, if there is such a thing, or detaches it while
// another object does the same.
func (s *Sending) AttachUser(wanted bool) error {
	p := s.NnSendUserTp
	if !wanted {
		return s.Detach(sendUserHook)
	}
	if p == nil || s.links[sendUserHook] != nil {
		return nil
	}
	err := s.attached(sendUserHook, p, false, func() (link.Link, error) { return attachHook("", 0, p) })
	if err != nil {
		return fmt.Errorf("attach %s: %w", sendUserHook, err)
	}
	return nil
}

// AttachDevice attaches to what a device in the namespace of the calling thread
// sends. A kernel without tcx (before 6.6) answers ebpf.ErrNotSupported.
func (s *Sending) AttachDevice(ifindex int, name string) error {
	if s.links[name] != nil {
		return nil
	}
	p := s.NnSendOut
	err := s.attached(name, p, true, func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	})
	if err != nil {
		return fmt.Errorf("attach to device %d: %w", ifindex, err)
	}
	return nil
}

// Attached says which programs that need no device are attached.
func (s *Sending) Attached() map[string]bool {
	out := map[string]bool{}
	if s.NnSendUserTp != nil {
		out[sendUserHook] = s.links[sendUserHook] != nil
	}
	return out
}

// SendingPurposes says for people what each hook is for.
func SendingPurposes() map[string]string {
	return map[string]string{
		"send_out":   "finds what is limited among what is sent and is no TCP",
		"send_back":  "sends it on when its turn has come",
		sendUserHook: "who uses a socket that is no TCP's",
	}
}

// Remove detaches everything and removes the pins of this object alone.
func (s *Sending) Remove() error { return errors.Join(s.removePins(), s.Close()) }

// Close lets go of everything and leaves pins and attachments as they are.
func (s *Sending) Close() error { return errors.Join(s.closeLinks(), s.sendingObjects.Close()) }
