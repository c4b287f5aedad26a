package enforce

import "errors"

// treeChanger is what LeaveBy needs of a Kernel.
type treeChanger interface {
	SetNode(NodeSpec) error
	RemoveNode(id uint32) error
	Join(id uint32, pid int) error
	Leave(id uint32) error
}

// LeaveBy takes a process without a node of its own out of the joinable node that directly encloses it, with its
// descendants. They leave inside the node way, which is made for that: its Parent is the node that they leave.
func LeaveBy(k treeChanger, way NodeSpec, pid int) error {
	if err := k.SetNode(way); err != nil {
		return err
	}
	err := k.Join(way.ID, pid)
	if err == nil {
		err = k.Leave(way.ID)
	}
	return errors.Join(err, k.RemoveNode(way.ID))
}
