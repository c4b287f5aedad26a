package shaping

import (
	"errors"
	"fmt"
	"math"

	"github.com/netnice/netnice/internal/bpf"
)

// A limit on both directions together is a clock that paces egress. Ingress is charged to that clock as it leaves its
// queue, in a class of its own. The queue's rate, and with it the senders' windows, follow what that class is due.

// setTotal gives ingress half of a node's total at first, since egress may begin at once. The first sample comes soon.
func (s *shaper) setTotal(id uint32, n *limited) error {
	limit := total(n.spec)
	if limit == 0 {
		n.due = 0
		return s.untell(id, n)
	}
	n.share = share{}
	return s.putDue(id, n, max(limit/2, 1))
}

func (s *shaper) putDue(id uint32, n *limited, due uint64) error {
	if err := s.obj.QueueRates.Put(id, due); err != nil {
		return fmt.Errorf("enter what is due to node %d: %w", id, err)
	}
	n.due = due
	return nil
}

// adapt samples every node with a total once.
func (s *shaper) adapt() error {
	var errs []error
	for id, n := range s.nodes {
		if total(n.spec) == 0 {
			continue
		}
		if err := s.adaptNode(id, n); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *shaper) adaptNode(id uint32, n *limited) error {
	var f bpf.Inflow
	if err := s.obj.Inflows.Lookup(id, &f); err != nil {
		return fmt.Errorf("read what node %d received: %w", id, err)
	}
	if !n.share.came(f.CameBytes) {
		return nil
	}
	key := bpf.ClassKey{Node: id, Direction: bpf.DirectionTotal, Child: bpf.ChildInflow}
	due, known, err := n.share.look(s.base, key, total(n.spec))
	if err != nil || !known {
		return err
	}
	if off := math.Abs(float64(due)-float64(n.due)) / float64(n.due); off < 0.002 {
		return nil
	}
	if err := s.putDue(id, n, due); err != nil {
		return err
	}
	c := n.wanted().wide(n.looks)
	queue := c.queueBytes
	c.queueBytes = 0 // keep the queue: a shorter one would drop packets ten times a second
	if err := s.pair.SetClass(id, c.htb()); err != nil {
		return err
	}
	if c.queueBytes = n.class.queueBytes; queue > c.queueBytes {
		c.queueBytes = queue
		err = s.pair.SetQueue(id, queue)
	}
	n.class = c
	return err
}
