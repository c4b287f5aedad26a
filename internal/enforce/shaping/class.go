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

// leafHandle returns the handle of the qdisc below a class. No class has the minor number 0, or the number of the
// root.
func leafHandle(minor uint32) uint32 { return minor << 16 }

// usualQuantum is the number of bytes that a class may send in one turn, while other classes at the same level wait.
const usualQuantum = 64 << 10

// setClass makes a node's class, or changes it in place. A queueBytes of 0 leaves the queue as it is.
func (p *pair) setClass(node uint32, c class) error {
	if err := p.setRate(node, c); err != nil || c.queueBytes == 0 {
		return err
	}
	if err := p.setQueue(node, c.queueBytes); err != nil {
		return fmt.Errorf("set the queue of node %d: %w", node, err)
	}
	return nil
}

// setRate makes a node's class or changes it. It leaves the qdiscs and classes below it as they are.
func (p *pair) setRate(node uint32, c class) error {
	err := p.nl.ClassReplace(&netlink.HtbClass{
		ClassAttrs: p.attrs(bpf.ShapeHandle, node),
		Rate:       c.rate, Ceil: c.rate, Buffer: c.bufferTicks, Cbuffer: c.bufferTicks, Quantum: usualQuantum,
	})
	if err != nil {
		return fmt.Errorf("set the class of node %d: %w", node, err)
	}
	return nil
}

func (p *pair) attrs(parent, minor uint32) netlink.ClassAttrs {
	return netlink.ClassAttrs{LinkIndex: p.queue.Attrs().Index, Parent: parent, Handle: classHandle(minor)}
}

// setQueue puts a FIFO below a class, which it finds by the minor number. The FIFO has a size in bytes, and the
// netlink library has no type for it.
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

// removeClass removes a node's class with its backlog.
func (p *pair) removeClass(node uint32) error {
	err := p.nl.ClassDel(&netlink.HtbClass{ClassAttrs: p.attrs(bpf.ShapeHandle, node)})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the class of node %d: %w", node, err)
	}
	return nil
}

// standing is the state of a class in HTB.
type standing struct {
	backlog, packets, drops uint32
}

// standings reads all classes, by their minor numbers. The classes are those of nodes, or the per-program classes
// below them.
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
