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
	// ShapeHandle is the handle of the queueing discipline whose classes are
	// the nodes.
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

// Shaping is the loaded object that shapes what comes in. It shares nodes,
// sockets and tasks with the Object that it was loaded beside; its own maps are
// pinned in the same folder.
type Shaping struct {
	shapingObjects
	pins
	cgroupRoot string
	natUnknown bool // it was loaded before connection tracking

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

// missingBeside names the programs of the objects that are loaded beside the first
// that this kernel has no place for, or that are not needed.
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
	out[sendShortProgram] = !created                                        // there the calls themselves tell
	out["nn_conns_list_buffers"], out["nn_conns_find_sockets"] = true, true // files tell enough
	return out, skipUnused(out, "find_sockets", "list_buffers")
}

// tracksConnections says whether the kernel's connection tracking, which is a module
// as a rule and loaded with the first rule of NAT, answers programs.
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

// Outdated says whether the object, loaded anew, would see what NAT does: the
// module has come since.
func (s *Shaping) Outdated() bool {
	if !s.natUnknown {
		return false
	}
	if _, err := os.Stat("/sys/kernel/btf/" + conntrack); err != nil {
		return false
	}
	s.natUnknown = false // one look tells
	return tracksConnections()
}

// LoadShaping loads the object for what comes in beside this one. Nothing is
// attached; maps that are pinned already are used as they are. Otherwise nothing
// is pinned until Pin.
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

// take fills the generated struct; programs that were left out stay nil. Maps
// that are shared belong to the other object.
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
		Receivers: m["receivers"], Kept: m["kept"], Shared: m["shared"], Sharers: m["sharers"], Listeners: m["listeners"], Dues: m["dues"], Scratch: m["scratch"], Unseen: m["unseen"], ShapeFaults: m["shape_faults"],
	}
}

// AttachHooks attaches what needs no device, and pins it; what a former process
// attached is taken over.
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

// AttachDevice attaches a program to what a device in the namespace of the calling
// thread receives. A kernel without tcx (before 6.6) answers ebpf.ErrNotSupported.
func (s *Shaping) AttachDevice(ifindex int, name string, p *ebpf.Program) error {
	return s.attachedTCX(name, link.TCXOptions{Interface: ifindex, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
}

// IsShaping says whether a shaping object is pinned in the folder.
func (o *Object) IsShaping() bool { return o.isPinned(shapingMark) }

// AdoptDatagrams makes the paths of the UDP sockets that the given processes
// hold, or, with nil, of those that all processes hold.
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

// VisitWindows sets the windows of the open connections in the namespace of the
// calling thread, and gives back those that no limit concerns any more. again
// says that some are kept by nothing else: that it is to be called once a second.
func (s *Shaping) VisitWindows() (again bool, err error) {
	out, err := run(s.NnShapeWindows, nil)
	if err != nil {
		return false, fmt.Errorf("set receive windows: %w", err)
	}
	return len(out) > 0, nil
}

// FindPlaces looks in which network namespaces something lives whose receiving is
// limited: places that are known are marked with the number of the look, others
// are returned.
func (s *Shaping) FindPlaces(look uint32, sockets *ebpf.Map) ([]Found, error) {
	if err := s.Look.Set(look); err != nil {
		return nil, fmt.Errorf("set iterator argument: %w", err)
	}
	tasks, err := records[Found](run(s.NnFindTasks, nil))
	if err != nil {
		return nil, fmt.Errorf("look where limited processes are: %w", err)
	}
	// of sockets that nobody has open some listener has the port, or nobody receives by them
	others, err := records[Found](s.findSockets.run(sockets, nil))
	if err != nil {
		return nil, fmt.Errorf("look where limited sockets are: %w", err)
	}
	return append(tasks, others...), nil
}

// Attached adds which programs are attached to those of the other object.
func (s *Shaping) Attached() map[string]bool {
	out := map[string]bool{}
	for _, h := range shapeHooks() {
		if h.program(&s.shapingObjects) != nil {
			out[h.name] = s.links[h.name] != nil
		}
	}
	return out
}

// ShapingPurposes says for people what each hook is for.
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

// Close lets go of everything and leaves pins and attachments as they are.
func (s *Shaping) Close() error {
	return errors.Join(s.closeLinks(), s.findSockets.Close(), s.shapingObjects.Close())
}
