package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/netnice/netnice/internal/enforce"
)

// ErrLayout says that maps pinned by another release have another layout.
var ErrLayout = errors.New("pinned state of another netnice release")

// Options say where netnice keeps its state.
type Options struct {
	PinDir     string // folder in a bpffs
	CgroupRoot string // mount point of cgroup v2
	Logger     *slog.Logger
}

// Object is the loaded kernel object. Its maps are pinned; its hooks are
// attached in groups by Attach and pinned too.
type Object struct {
	netniceObjects
	opts   Options
	links  map[string]link.Link
	meters pins      // attachments to limited devices
	execs  link.Link // see exec.go; nil = not attached
	lock   *os.File  // lock on the pin folder
	// missing names programs of the objects that are loaded beside this one: those that this kernel does not support or
	// does not need.
	missing map[string]bool
	former  bool // see former.go

	listSockets, assignSockets, carryRates eachSocket
	spaces                                 spaces
}

// missing returns the programs of the main object that the running kernel does not support or does not need. It
// decides by the kernel's type information and by probes.
func missing(spec *btf.Spec) (map[string]bool, error) {
	created, err := socketsSeenMade()
	if err != nil {
		return nil, err
	}
	k := kernelTypes{spec}
	out := map[string]bool{}
	if created {
		out["nn_connect_fentry"], out["nn_listen_fentry"], out["nn_egress"] = true, true, true
	} else {
		out["nn_sock_create"], out["nn_egress_users"] = true, true
	}
	err = errors.Join(
		k.skipSendHooks(out),
		k.skipMPTCPHooks(out, created),
		k.skipDatagramHooks(out, created),
		skipUnused(out, "list_sockets", "assign_sockets", "carry_rates"),
	)
	if err != nil {
		return nil, err
	}
	out["nn_files_carry_rates"], out["nn_conns_carry_rates"] = true, true // loadCarryRates loads these
	return out, nil
}

// kernelTypes is the type information of the running kernel.
type kernelTypes struct{ spec *btf.Spec }

// hasTracepoint reports whether the kernel has a tracepoint of this name.
func (k kernelTypes) hasTracepoint(name string) (bool, error) {
	var t *btf.Typedef
	return isFound("tracepoint "+name, k.spec.TypeByName("btf_trace_"+name, &t))
}

// hasFunction reports whether the kernel has a function of this name.
func (k kernelTypes) hasFunction(name string) (bool, error) {
	var f *btf.Func
	return isFound(name, k.spec.TypeByName(name, &f))
}

// isFound turns the error of a search for a type into whether the type exists.
func isFound(what string, err error) (bool, error) {
	if errors.Is(err, btf.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", what, err)
	}
	return true, nil
}

// skipSendHooks adds the programs for sending TCP that another one replaces on this kernel.
func (k kernelTypes) skipSendHooks(out map[string]bool) error {
	tracepoint, err := k.hasTracepoint("tcp_sendmsg_locked")
	if err != nil {
		return err
	}
	if tracepoint {
		out["nn_send_fentry"], out["nn_sendpages_fentry"] = true, true
		return nil
	}
	out["nn_send_tp"] = true
	pages, err := k.hasFunction("do_tcp_sendpages")
	if err == nil && !pages {
		out["nn_sendpages_fentry"] = true
	}
	return err
}

// skipMPTCPHooks adds one of the two programs for MPTCP, or both: a kernel may be built without MPTCP. created says that
// the hook at a socket's creation finds the socket owner.
func (k kernelTypes) skipMPTCPHooks(out map[string]bool, created bool) error {
	mptcp, err := k.hasTracepoint("mptcp_subflow_get_send")
	if err != nil {
		return err
	}
	if created || !mptcp {
		out["nn_mptcp_fentry"] = true
	}
	if !created || !mptcp {
		out["nn_mptcp_tp"] = true
	}
	return nil
}

// skipDatagramHooks adds the programs for functions that this kernel has not, because IPv6 may be a module or missing. If
// the hook at a socket's creation finds the socket owner (created), it adds all of them.
func (k kernelTypes) skipDatagramHooks(out map[string]bool, created bool) error {
	for _, function := range datagramFunctions() {
		exists, err := k.hasFunction(function)
		if err != nil {
			return err
		}
		if created || !exists {
			out["nn_"+function] = true
		}
	}
	return nil
}

// datagramFunctions returns the kernel functions that send non-TCP egress.
func datagramFunctions() []string {
	return []string{"udp_sendmsg", "udpv6_sendmsg", "raw_sendmsg", "rawv6_sendmsg", "ping_v4_sendmsg", "ping_v6_sendmsg"}
}

// socketsSeenMade reports whether the hook at a socket's creation can find the socket owner. To do so it must be
// allowed to read task storage.
func socketsSeenMade() (bool, error) {
	err := features.HaveProgramHelper(ebpf.CGroupSock, asm.FnTaskStorageGet)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probe task storage in cgroup programs: %w", err)
	}
	return true, nil
}

// Load opens the object. It uses maps that are pinned already as they are, and loads all programs. It attaches nothing.
func Load(opts Options) (*Object, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked memory limit: %w", err)
	}
	spec, err := loadNetnice()
	if err != nil {
		return nil, fmt.Errorf("read the kernel object: %w", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's type information (/sys/kernel/btf/vmlinux): %w", err)
	}
	skip, err := missing(kernel)
	if err != nil {
		return nil, err
	}
	beside, err := missingBeside(kernel)
	if err != nil {
		return nil, err
	}
	for name := range skip {
		delete(spec.Programs, name)
	}
	delete(spec.Maps, formerSocketsMap)
	v := spec.Variables
	if err := errors.Join(v["ask_every_ns"].Set(uint64(time.Second/enforce.AsksPerSec)), v["asks_at_once"].Set(uint64(enforce.AsksAtOnce))); err != nil {
		return nil, fmt.Errorf("set how often a user may ask: %w", err)
	}
	for _, m := range spec.Maps {
		if m.Name[0] != '.' && m.Name != execMap {
			m.Pinning = ebpf.PinByName
		}
	}
	lock, err := lockPinDir(opts.PinDir)
	if err != nil {
		return nil, err
	}
	o := &Object{opts: opts, meters: newPins(opts.PinDir, ""), links: map[string]link.Link{}, lock: lock, missing: beside}
	coll, err := loadInParts(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: opts.PinDir}})
	if err != nil {
		_ = lock.Close()
	}
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return nil, fmt.Errorf("%w in %s: %w", ErrLayout, opts.PinDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load the kernel object: %w", err)
	}
	o.take(coll)
	if err := o.noteFormer(); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// take fills the generated structs. Programs that were left out stay nil.
func (o *Object) take(c *ebpf.Collection) {
	p, m, v := c.Programs, c.Maps, c.Variables
	o.netnicePrograms = netnicePrograms{
		NnSockops: p["nn_sockops"], NnSetsockopt: p["nn_setsockopt"], NnGetsockopt: p["nn_getsockopt"],
		NnSockCreate: p["nn_sock_create"], NnEgress: p["nn_egress"],
		NnSendTp: p["nn_send_tp"], NnSendFentry: p["nn_send_fentry"], NnSendpagesFentry: p["nn_sendpages_fentry"],
		NnMptcpTp: p["nn_mptcp_tp"], NnMptcpFentry: p["nn_mptcp_fentry"],
		NnConnectFentry: p["nn_connect_fentry"], NnListenFentry: p["nn_listen_fentry"],
		NnConnect4: p["nn_connect4"], NnConnect6: p["nn_connect6"], NnSendmsg4: p["nn_sendmsg4"], NnSendmsg6: p["nn_sendmsg6"],
		NnUdpSendmsg: p["nn_udp_sendmsg"], NnUdpv6Sendmsg: p["nn_udpv6_sendmsg"],
		NnRawSendmsg: p["nn_raw_sendmsg"], NnRawv6Sendmsg: p["nn_rawv6_sendmsg"],
		NnPingV4Sendmsg: p["nn_ping_v4_sendmsg"], NnPingV6Sendmsg: p["nn_ping_v6_sendmsg"],
		NnFork: p["nn_fork"], NnExec: p["nn_exec"], NnAdoptTasks: p["nn_adopt_tasks"], NnReleaseTasks: p["nn_release_tasks"],
		NnListTasks: p["nn_list_tasks"], NnAdoptFiles: p["nn_adopt_files"], NnAdoptUrings: p["nn_adopt_urings"],
		NnAdoptUringTcp: p["nn_adopt_uring_tcp"], NnAdoptUringUdp: p["nn_adopt_uring_udp"],
		NnAdoptConnections: p["nn_adopt_connections"], NnFollowFiles: p["nn_follow_files"],
		NnMeter: p["nn_meter"],
	}
	o.listSockets, o.assignSockets, o.carryRates = eachSocketOf(p, "list_sockets"), eachSocketOf(p, "assign_sockets"), eachSocketOf(p, "carry_rates")
	if users := p["nn_egress_users"]; users != nil {
		o.NnEgress = users
	}
	o.netniceMaps = netniceMaps{
		Nodes: m["nodes"], Clocks: m["clocks"], Classes: m["classes"], Sockets: m["sockets"], Tasks: m["tasks"],
		Users: m["users"], Cgroups: m["cgroups"], SocketNodes: m["socket_nodes"], StatelessSockets: m["stateless_sockets"], StatelessNoted: m["stateless_noted"], StatelessUsers: m["stateless_users"], Hooked: m["hooked"], Policy: m["policy"], Subordinates: m["subordinates"], Faults: m["faults"], Events: m["events"],
		PortsSeen: m["ports_seen"], PortOwners: m["port_owners"], FreeCgroups: m["free_cgroups"], Buffers: m["buffers"], Unknown: m["unknown"], Execs: m["execs"],
		Destinations: m["destinations"], DestinationUses: m["destination_uses"], DestinationMemos: m["destination_memos"], Links: m["links"], QueuedDevices: m["queued_devices"], PeersMet: m["peers_met"], Stored: m["stored"], PeersNoted: m["peers_noted"],
		UringSockets: m["uring_sockets"], UringsSeen: m["urings_seen"],
		Requests: m["requests"], Answers: m["answers"], Asked: m["asked"], Askers: m["askers"], FixedRates: m["fixed_rates"],
	}
	o.netniceVariables = netniceVariables{
		AdoptRootTgid: v["adopt_root_tgid"], AdoptNode: v["adopt_node"],
		AdoptOuter: v["adopt_outer"], ReleaseNode: v["release_node"], ListNode: v["list_node"],
		FollowWalk: v["follow_walk"], UringNoted: v["uring_noted"], ReleaseRates: v["release_rates"], FormerRelease: v["former_release"], ListOthers: v["list_others"], AdminGroup: v["admin_group"], FormerSocket: v["former_socket"],
	}
}

// Remove removes all pins and then closes the object, so that nothing is left to a successor. It unmounts the BPF file
// system if netnice mounted it. The caller has detached the hooks before.
func (o *Object) Remove() error {
	former, err := removePins(formerDir(o.opts.PinDir))
	if err != nil {
		return err
	}
	ours, err := removePins(o.opts.PinDir)
	if err != nil {
		return err
	}
	err = o.Close() // the lock's descriptor keeps the file system busy
	if ours || former {
		err = errors.Join(err, unmount(filepath.Dir(o.opts.PinDir)))
	}
	return err
}

// Close closes everything that the object holds. Pins, and attachments that are pinned, stay as they are.
func (o *Object) Close() error {
	errs := []error{o.AttachExecs(false), o.meters.closeLinks()}
	for _, l := range o.links {
		errs = append(errs, l.Close())
	}
	for _, p := range []*ebpf.Program{
		o.NnSockops, o.NnSetsockopt, o.NnGetsockopt, o.NnSockCreate, o.NnEgress, o.NnSendTp, o.NnSendFentry,
		o.NnSendpagesFentry, o.NnMptcpTp, o.NnMptcpFentry, o.NnConnectFentry, o.NnListenFentry, o.NnFork, o.NnExec, o.NnAdoptTasks, o.NnReleaseTasks, o.NnListTasks, o.NnAdoptFiles,
		o.NnFollowFiles, o.NnAdoptConnections, o.NnMeter, o.NnAdoptUrings, o.NnAdoptUringTcp, o.NnAdoptUringUdp,
		o.NnConnect4, o.NnConnect6, o.NnSendmsg4, o.NnSendmsg6,
		o.NnUdpSendmsg, o.NnUdpv6Sendmsg, o.NnRawSendmsg, o.NnRawv6Sendmsg, o.NnPingV4Sendmsg, o.NnPingV6Sendmsg,
	} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	for _, each := range []eachSocket{o.listSockets, o.assignSockets, o.carryRates} {
		errs = append(errs, each.Close())
	}
	o.spaces.close()
	errs = append(errs, o.netniceMaps.Close(), o.lock.Close())
	return errors.Join(errs...)
}
