package queuepair

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

// Class holds the parameters of a node's class.
type Class struct {
	Rate        uint64 // link bytes per second
	BufferTicks uint32
	QueueBytes  uint32 // 0: the queue stays as it is
}

// SetClass makes a node's class, or changes it in place. A QueueBytes of 0 leaves the queue as it is.
func (p *Pair) SetClass(node uint32, c Class) error {
	if err := p.SetRate(node, c); err != nil || c.QueueBytes == 0 {
		return err
	}
	if err := p.SetQueue(node, c.QueueBytes); err != nil {
		return fmt.Errorf("set the queue of node %d: %w", node, err)
	}
	return nil
}

// SetRate makes a node's class or changes it. It leaves the qdiscs and classes below it as they are.
func (p *Pair) SetRate(node uint32, c Class) error {
	err := p.NL.ClassReplace(&netlink.HtbClass{
		ClassAttrs: p.attrs(bpf.ShapeHandle, node),
		Rate:       c.Rate, Ceil: c.Rate, Buffer: c.BufferTicks, Cbuffer: c.BufferTicks, Quantum: usualQuantum,
	})
	if err != nil {
		return fmt.Errorf("set the class of node %d: %w", node, err)
	}
	return nil
}

func (p *Pair) attrs(parent, minor uint32) netlink.ClassAttrs {
	return netlink.ClassAttrs{LinkIndex: p.Queue.Attrs().Index, Parent: parent, Handle: classHandle(minor)}
}

// SetQueue puts a FIFO below a class, which it finds by the minor number. The FIFO has a size in bytes, and the
// netlink library has no type for it.
func (p *Pair) SetQueue(node, bytes uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(p.Queue.Attrs().Index), Handle: leafHandle(node), Parent: classHandle(node),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bfifo")))
	req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, nl.Uint32Attr(bytes)))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	runtime.KeepAlive(req)
	return err
}

// RemoveClass removes a node's class with its backlog.
func (p *Pair) RemoveClass(node uint32) error {
	err := p.NL.ClassDel(&netlink.HtbClass{ClassAttrs: p.attrs(bpf.ShapeHandle, node)})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the class of node %d: %w", node, err)
	}
	return nil
}

// Standing is the state of a class in HTB.
type Standing struct {
	Backlog, Packets, Drops uint32
}

// Standings reads all classes, by their minor numbers. The classes are those of nodes, or the per-program classes
// below them.
func (p *Pair) Standings() (map[uint32]Standing, error) {
	list, err := p.NL.ClassList(p.Queue, 0)
	if err != nil {
		return nil, fmt.Errorf("list the classes of %s: %w", p.Queue.Attrs().Name, err)
	}
	out := make(map[uint32]Standing, len(list))
	for _, c := range list {
		a := c.Attrs()
		if a.Statistics == nil || a.Handle&0xffff0000 != bpf.ShapeHandle {
			continue
		}
		var s Standing
		if q := a.Statistics.Queue; q != nil {
			s.Backlog, s.Packets, s.Drops = q.Backlog, q.Qlen, q.Drops
		}
		out[a.Handle&0xffff] = s
	}
	return out, nil
}

// Unlimited is a rate, in bytes/s, at which a queue is empty at once.
const Unlimited = 100e9

// These are the parameters of a class below a node's, which limit nothing.
const (
	belowRate   = 1
	belowBuffer = 1 << 20
)

// SetBelow makes or changes a class below a node's. The class has a minor number of its own, and sends quantum bytes in
// a turn. SetBelow also sets the queue of the class, unless queueBytes is 0.
func (p *Pair) SetBelow(node, minor, quantum, priority, queueBytes uint32) error {
	err := p.NL.ClassReplace(&netlink.HtbClass{
		ClassAttrs: p.attrs(classHandle(node), minor),
		Rate:       belowRate, Ceil: Unlimited, Buffer: 1, Cbuffer: belowBuffer, Quantum: quantum, Prio: priority,
	})
	if err == nil && queueBytes != 0 {
		err = p.SetQueue(minor, queueBytes)
	}
	if err != nil {
		return fmt.Errorf("set a lane of node %d: %w", node, err)
	}
	return nil
}

// RemoveBelow removes a class below a node's with its backlog.
func (p *Pair) RemoveBelow(node, minor uint32) error {
	err := p.NL.ClassDel(&netlink.HtbClass{ClassAttrs: p.attrs(classHandle(node), minor)})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove a lane of node %d: %w", node, err)
	}
	return nil
}
