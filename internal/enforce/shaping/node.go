package shaping

import (
	"errors"

	"github.com/netnice/netnice/internal/enforce"
)

// SetNode implements enforce.Nodes.
func (k *Kernel) SetNode(spec enforce.NodeSpec) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.setReceiving(spec); err != nil {
		return err
	}
	delete(k.backlogs, spec.ID)
	if spec.BacklogNS != 0 {
		k.backlogs[spec.ID] = spec.BacklogNS
	}
	err := errors.Join(k.setSending(spec), k.meter(spec))
	if spec.DSCP != 0 || k.marks.any() {
		err = errors.Join(err, k.lookAtMarks())
	}
	return err
}

// setReceiving sets the node, and its limit on ingress. A node without such a limit loses its class.
func (k *Kernel) setReceiving(spec enforce.NodeSpec) error {
	rate, _ := ceiling(spec)
	had := k.on != nil && k.on.nodes[spec.ID] != nil
	if rate == 0 && !had {
		return k.pacing.SetNode(spec)
	}
	if rate == 0 {
		if err := k.pacing.SetNode(spec); err != nil {
			return err
		}
		return k.lift(spec.ID)
	}
	// The class exists before the datapath leads the first packet to it.
	if err := k.start(); err != nil {
		return err
	}
	var before enforce.NodeSpec
	if had {
		before = k.on.nodes[spec.ID].spec
	}
	err := k.on.set(spec)
	if err == nil {
		err = k.pacing.SetNode(spec)
	}
	if err != nil {
		if had {
			return errors.Join(err, k.on.set(before))
		}
		return errors.Join(err, k.lift(spec.ID))
	}
	if spec.Store != 0 {
		return nil // no address has this node yet, and the node of its pool keeps the devices attached
	}
	if err := k.settle(); err != nil {
		return err
	}
	if err := k.on.brokenFor(spec); err != nil {
		return err
	}
	if had {
		return k.on.visitWindows()
	}
	return k.adopt(spec)
}

// adopt applies a node's limit to the UDP sockets and open connections of running members.
func (k *Kernel) adopt(spec enforce.NodeSpec) error {
	var members []uint32
	if spec.Kind == enforce.KindTree {
		var err error
		if members, err = k.pacing.Members(spec.ID); err != nil {
			return err
		}
		if members == nil {
			members = []uint32{}
		}
	}
	if err := k.on.obj.AdoptDatagrams(members); err != nil {
		return err
	}
	return k.on.visitWindows()
}

// lift ends the work for a node that no longer limits ingress.
func (k *Kernel) lift(id uint32) error {
	if k.on == nil {
		return nil
	}
	k.drain(id)
	return errors.Join(k.on.release(id), k.on.visitWindows())
}

// Join implements enforce.Members.
func (k *Kernel) Join(id uint32, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.pacing.Join(id, pid); err != nil {
		return err
	}
	if k.on == nil || k.on.nodes[id] == nil {
		return nil
	}
	if err := k.settle(); err != nil { // the process may live in another namespace
		return err
	}
	return k.adopt(k.on.nodes[id].spec)
}

// Leave implements enforce.Members.
func (k *Kernel) Leave(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.pacing.Leave(id); err != nil || k.on == nil {
		return err
	}
	return k.on.visitWindows()
}

// RemoveNode implements enforce.Nodes.
func (k *Kernel) RemoveNode(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	spec, known := k.pacing.Node(id)
	if err := k.pacing.RemoveNode(id); err != nil {
		return err
	}
	delete(k.backlogs, id)
	err := k.sendsNoMore(id)
	if known {
		err = errors.Join(err, k.unmeter(spec))
	}
	if k.marks.any() {
		err = errors.Join(err, k.lookAtMarks())
	}
	switch {
	case k.on == nil || k.on.nodes[id] == nil:
		return err
	case known && spec.Store != 0: // no receive window was sized for it
		k.drain(id)
		return errors.Join(err, k.on.release(id))
	}
	return errors.Join(err, k.lift(id))
}
