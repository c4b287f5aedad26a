package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// The structs of bpf/shape_types.h, as bpf2go made them.
//
//revive:disable:exported
type (
	Shaper    = shapingNnShaper
	Place     = shapingNnPlace
	DeviceKey = shapingNnDeviceKey
	Device    = shapingNnDevice
	Slot      = shapingNnSlot
	Inflow    = shapingNnInflow
	Found     = shapingNnFound
)

//revive:enable:exported

const (
	// ShapeHandle is the handle of the qdisc whose classes are the nodes.
	ShapeHandle = 0x6e6e0000
	// MaxDevices bounds Device.Slot.
	MaxDevices = 1024
)

// Flags of Device.Flags.
const (
	DeviceBare   = uint32(shapingNnDeviceFlagsNN_DEVICE_BARE)
	DeviceClsact = uint32(shapingNnDeviceFlagsNN_DEVICE_CLSACT)
)

// ShapeFaultNames are the counters of the shape_faults map, by index.
func ShapeFaultNames() []string {
	return []string{"shape_class", "shape_device", "shape_header", "shape_window"}
}

// Shaping is the loaded object that shapes ingress. It shares nodes, sockets and tasks with the Object that it was
// loaded beside. Its own maps are pinned in the same folder.
type Shaping struct {
	shapingObjects
	pins
	cgroupRoot string
	natUnknown bool // the object was loaded when there was no connection tracking

	findSockets eachSocket
}

// shapeHook is a program that needs no device.
type shapeHook struct {
	name    string
	cgroup  ebpf.AttachType // 0 for tracing programs
	program func(*shapingObjects) *ebpf.Program
	purpose string
}

func shapeHooks() []shapeHook {
	return []shapeHook{
		{"shape_window", ebpf.AttachCGroupSockOps, func(o *shapingObjects) *ebpf.Program { return o.NnShapeWindow }, "keeps receive windows short"},
		{"datagram_create", ebpf.AttachCGroupInetSockCreate, func(o *shapingObjects) *ebpf.Program { return o.NnDatagramCreate }, "who makes sockets in another network namespace"},
		{"place_exec", 0, func(o *shapingObjects) *ebpf.Program { return o.NnPlaceExec }, "who goes to another network namespace"},
		{"bound4", ebpf.AttachCGroupInet4PostBind, func(o *shapingObjects) *ebpf.Program { return o.NnBound4 }, "which port a UDP socket has"},
		{"bound6", ebpf.AttachCGroupInet6PostBind, func(o *shapingObjects) *ebpf.Program { return o.NnBound6 }, "which port a UDP socket has, over IPv6"},
		{"bound_fexit", 0, func(o *shapingObjects) *ebpf.Program { return o.NnBoundFexit }, "whose a UDP socket is, and which port it has"},
	}
}

// shapingMark is the map whose pin says that there is a shaping object.
const shapingMark = "shaper"

// Purposes of the programs that are attached to devices.
const (
	shapeInPurpose   = "finds what is limited among what comes in"
	shapeBackPurpose = "puts it back where it came from"
	shapeLinkPurpose = "leads what comes in to other network namespaces to the queue"
)

// missingBeside returns programs of the objects that are loaded beside the main one: those that this kernel does not
// support, and those that are not needed.
func missingBeside(kernel *btf.Spec) (map[string]bool, error) {
	out := map[string]bool{}
	created, err := socketsSeenMade()
	if err != nil {
		return nil, err
	}
	var bound *btf.Func
	out["nn_bound_fexit"] = created || kernel.TypeByName("udp_lib_get_port", &bound) != nil
	if !created {
		out["nn_datagram_create"], out["nn_bound4"], out["nn_bound6"] = true, true, true
	}
	out[sendShortProgram] = !created                                        // the hooks at the send calls tell it instead
	out["nn_conns_list_buffers"], out["nn_conns_find_sockets"] = true, true // the iterators over files are enough
	return out, skipUnused(out, "find_sockets", "list_buffers")
}

// tracksConnections reports whether programs can query the kernel's connection tracking. It is usually a module, which
// is loaded with the first NAT rule.
func tracksConnections() bool {
	const asked = "bpf_skb_ct_lookup"
	var f *btf.Func
	if kernel, err := btf.LoadKernelSpec(); err == nil && kernel.TypeByName(asked, &f) == nil {
		return true
	}
	module, err := btf.LoadKernelModuleSpec(conntrack)
	return err == nil && module.TypeByName(asked, &f) == nil
}

const conntrack = "nf_conntrack"

// Outdated reports whether the object would see what NAT does if it were loaded again, because the module has been
// loaded since.
func (s *Shaping) Outdated() bool {
	if !s.natUnknown {
		return false
	}
	if _, err := os.Stat("/sys/kernel/btf/" + conntrack); err != nil {
		return false
	}
	s.natUnknown = false // one look is enough
	return tracksConnections()
}

// LoadShaping loads the object for ingress beside this one. It attaches nothing, and uses maps that are pinned already
// as they are. Otherwise nothing is pinned until Pin.
func (o *Object) LoadShaping() (*Shaping, error) {
	spec, err := loadShaping()
	if err != nil {
		return nil, fmt.Errorf("read the object for what comes in: %w", err)
	}
	s := &Shaping{pins: newPins(o.opts.PinDir, shapingMark), cgroupRoot: o.opts.CgroupRoot, natUnknown: !tracksConnections()}
	if !s.natUnknown {
		if err := spec.Variables["nat_known"].Set(uint32(1)); err != nil {
			return nil, fmt.Errorf("prepare the object for what comes in: %w", err)
		}
	}
	coll, err := o.loadBeside(spec, &s.pins)
	if err != nil {
		return nil, fmt.Errorf("load the object for what comes in: %w", err)
	}
	s.take(coll)
	return s, nil
}

// take fills the generated structs. Programs that were left out stay nil. Maps that are shared belong to the other
// object.
func (s *Shaping) take(c *ebpf.Collection) {
	p, m := c.Programs, c.Maps
	s.shapingPrograms = shapingPrograms{
		NnShapeIn: p["nn_shape_in"], NnShapeBack: p["nn_shape_back"], NnShapeWindow: p["nn_shape_window"],
		NnShapeWindows: p["nn_shape_windows"], NnDatagramCreate: p["nn_datagram_create"],
		NnBound4: p["nn_bound4"], NnBound6: p["nn_bound6"], NnBoundFexit: p["nn_bound_fexit"],
		NnAdoptUdpFiles: p["nn_adopt_udp_files"], NnShapeHome: p["nn_shape_home"], NnShapeDeliver: p["nn_shape_deliver"],
		NnPlaceExec: p["nn_place_exec"],
		NnFindTasks: p["nn_find_tasks"],
	}
	s.findSockets = eachSocketOf(p, "find_sockets")
	s.shapingVariables = shapingVariables{Look: c.Variables["look"]}
	s.shapingMaps = shapingMaps{
		Shaper: m["shaper"], Places: m["places"], Devices: m["devices"], Slots: m["slots"], Inflows: m["inflows"],
		Receivers: m["receivers"], Kept: m["kept"], Early: m["early"], Shared: m["shared"], Sharers: m["sharers"], Listeners: m["listeners"], QueueRates: m["queue_rates"], Scratch: m["scratch"], Unseen: m["unseen"], UdpUnlimited: m["udp_unlimited"], ShapeFaults: m["shape_faults"],
	}
}

// AttachHooks attaches and pins the programs that need no device. It takes over those that an earlier process attached.
func (s *Shaping) AttachHooks() error {
	for _, h := range shapeHooks() {
		p := h.program(&s.shapingObjects)
		if p == nil || s.links[h.name] != nil {
			continue
		}
		err := s.attached(h.name, p, h.cgroup != 0, func() (link.Link, error) {
			return attachHook(s.cgroupRoot, h.cgroup, p)
		})
		if err != nil {
			return fmt.Errorf("attach %s: %w", h.name, err)
		}
	}
	return nil
}

// AttachDevice attaches a program to the ingress of a device in the network namespace of the calling thread. The error
// is ebpf.ErrNotSupported on a kernel without tcx (before 6.6).
func (s *Shaping) AttachDevice(ifindex int, name string, p *ebpf.Program) error {
	return s.attachedTCX(name, link.TCXOptions{Interface: ifindex, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
}

// IsShaping reports whether a shaping object is pinned in the folder.
func (o *Object) IsShaping() bool { return o.isPinned(shapingMark) }

// AdoptDatagrams makes the paths of the UDP sockets that the given processes hold, or, if tgids is nil, of those that
// any process holds.
func (s *Shaping) AdoptDatagrams(tgids []uint32) error {
	if tgids == nil {
		_, err := run(s.NnAdoptUdpFiles, nil)
		return err
	}
	for _, tgid := range tgids {
		if _, _, err := runOfProcess(s.NnAdoptUdpFiles, tgid); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("adopt UDP sockets of process %d: %w", tgid, err)
		}
	}
	return nil
}

// VisitWindows sets the receive windows of the open connections in the network namespace of the calling thread. It
// restores the windows that no limit concerns any more. again is true if only VisitWindows keeps some windows at their
// size; it must then be called once a second.
func (s *Shaping) VisitWindows() (again bool, err error) {
	out, err := run(s.NnShapeWindows, nil)
	if err != nil {
		return false, fmt.Errorf("set receive windows: %w", err)
	}
	return len(out) > 0, nil
}

// FindPlaces finds the network namespaces that contain processes or sockets with limited ingress. It marks namespaces
// that are known with the number of this look, and returns the others.
func (s *Shaping) FindPlaces(look uint32, sockets *ebpf.Map) ([]Found, error) {
	if err := s.Look.Set(look); err != nil {
		return nil, fmt.Errorf("set iterator argument: %w", err)
	}
	tasks, err := records[Found](run(s.NnFindTasks, nil))
	if err != nil {
		return nil, fmt.Errorf("look where limited processes are: %w", err)
	}
	// Sockets that no process has open can be left out: a listener has the same port, or nothing is received on them.
	others, err := records[Found](s.findSockets.run(sockets, nil))
	if err != nil {
		return nil, fmt.Errorf("look where limited sockets are: %w", err)
	}
	return append(tasks, others...), nil
}

// Attached returns the programs that need no device, and whether each is attached. They complement Object.Attached.
func (s *Shaping) Attached() map[string]bool {
	out := map[string]bool{}
	for _, h := range shapeHooks() {
		if h.program(&s.shapingObjects) != nil {
			out[h.name] = s.links[h.name] != nil
		}
	}
	return out
}

// ShapingPurposes returns for each hook what it is for, in words for people.
func ShapingPurposes() map[string]string {
	out := map[string]string{"shape_in": shapeInPurpose, "shape_back": shapeBackPurpose, "shape_link": shapeLinkPurpose}
	for _, h := range shapeHooks() {
		out[h.name] = h.purpose
	}
	return out
}

// Remove detaches everything and removes the pins of this object alone.
func (s *Shaping) Remove() error {
	return errors.Join(s.removePins(), s.Close())
}

// Close closes everything that the object holds, and leaves pins and attachments as they are.
func (s *Shaping) Close() error {
	return errors.Join(s.closeLinks(), s.findSockets.Close(), s.shapingObjects.Close())
}
