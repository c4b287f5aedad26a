package shaping

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

func classHandle(node uint32) uint32 { return bpf.ShapeHandle | node }

// leafHandle is the queue's own: no class has 0 as its minor number, and no node
// the number of the root.
func leafHandle(node uint32) uint32 { return node << 16 }

// setClass makes a node's class, or changes it in place.
func (p *pair) setClass(node uint32, c class) error {
	attrs := netlink.ClassAttrs{
		LinkIndex: p.queue.Attrs().Index, Parent: bpf.ShapeHandle, Handle: classHandle(node),
	}
	const quantum = 64 << 10
	err := p.nl.ClassReplace(&netlink.HtbClass{
		ClassAttrs: attrs, Rate: c.rate, Ceil: c.rate, Buffer: c.bufferTicks, Cbuffer: c.bufferTicks, Quantum: quantum,
	})
	if err != nil {
		return fmt.Errorf("set the class of node %d: %w", node, err)
	}
	if c.queueBytes == 0 {
		return nil
	}
	if err := p.setQueue(node, c.queueBytes); err != nil {
		return fmt.Errorf("set the queue of node %d: %w", node, err)
	}
	return nil
}

// setQueue puts a FIFO that is sized in bytes below a class: the netlink library
// has no type for it.
func (p *pair) setQueue(node, bytes uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(p.queue.Attrs().Index), Handle: leafHandle(node), Parent: classHandle(node),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bfifo")))
	req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, nl.Uint32Attr(bytes)))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	runtime.KeepAlive(req)
	return err
}

// removeClass removes a node's class with what waits in it.
func (p *pair) removeClass(node uint32) error {
	err := p.nl.ClassDel(&netlink.HtbClass{ClassAttrs: netlink.ClassAttrs{
		LinkIndex: p.queue.Attrs().Index, Parent: bpf.ShapeHandle, Handle: classHandle(node),
	}})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the class of node %d: %w", node, err)
	}
	return nil
}

// standing is what HTB says of a class.
type standing struct {
	backlog, packets, drops uint32
}

// standings reads all classes, by node.
func (p *pair) standings() (map[uint32]standing, error) {
	list, err := p.nl.ClassList(p.queue, 0)
	if err != nil {
		return nil, fmt.Errorf("list the classes of %s: %w", p.queue.Attrs().Name, err)
	}
	out := make(map[uint32]standing, len(list))
	for _, c := range list {
		a := c.Attrs()
		if a.Statistics == nil || a.Handle&0xffff0000 != bpf.ShapeHandle {
			continue
		}
		var s standing
		if q := a.Statistics.Queue; q != nil {
			s.backlog, s.packets, s.drops = q.Backlog, q.Qlen, q.Drops
		}
		out[a.Handle&0xffff] = s
	}
	return out, nil
}
