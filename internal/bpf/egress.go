package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// movedHook names the pin of the egress hook's new link, until that link replaces the one on the previous cgroup.
const movedHook = "egress_moved"

// MoveEgress attaches the egress hook to the cgroup at a path below the root, and to no other. It calls told with the
// cgroup's id (0 for the root) before it detaches the hook from the previous cgroup. The hook is on both cgroups then;
// either of the two returns packets to TCP that meet both. MoveEgress does nothing if this object has attached the hook
// to that cgroup already.
func (o *Object) MoveEgress(path string, told func(cover uint64) error) error {
	id, err := o.cgroupID(path)
	if err != nil {
		return err
	}
	cover := id
	if path == "/" {
		cover = 0
	}
	pin, moved := linkPath(o.opts.PinDir, egressHook), linkPath(o.opts.PinDir, movedHook)
	old := o.links[egressHook]
	if old != nil && cgroupOf(old) == id {
		return nil
	}
	if old == nil {
		// An earlier process may have ended in the middle of a move. The link that it left stays until the hook is on
		// the right cgroup.
		rest, err := o.takeOverEgress(moved)
		if err != nil {
			return err
		}
		if rest != nil {
			defer rest.Close()
			if err := rest.Unpin(); err != nil {
				return fmt.Errorf("unpin %s: %w", moved, err)
			}
		}
		if old, err = o.takeOverEgress(pin); err != nil {
			return err
		}
		if old != nil && cgroupOf(old) == id {
			o.links[egressHook] = old
			return told(cover)
		}
	}
	next, err := pinnedInstead(nil, moved, func() (link.Link, error) {
		return attachHook(filepath.Join(o.opts.CgroupRoot, path), ebpf.AttachCGroupInetEgress, o.NnEgress)
	})
	if err == nil {
		if err = told(cover); err != nil {
			_ = next.Unpin()
		} else {
			err = os.Rename(moved, pin) // the old link's pin goes at the same moment
		}
		_ = next.Close() // its pin keeps it
	}
	if err != nil {
		if old != nil {
			o.links[egressHook] = old
		}
		return fmt.Errorf("attach %s to %s: %w", egressHook, filepath.Join(o.opts.CgroupRoot, path), err)
	}
	if old != nil {
		_ = old.Close()
	}
	delete(o.links, egressHook)
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open %s: %w", pin, err)
	}
	o.links[egressHook] = l
	return nil
}

// takeOverEgress opens a pinned link and gives it this object's program. It returns nil if there is none. A link whose
// cgroup is gone has no effect any more, and is returned as it is.
func (o *Object) takeOverEgress(pin string) (link.Link, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", pin, err)
	}
	if cgroupOf(l) == 0 {
		return l, nil
	}
	if err := l.Update(o.NnEgress); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("take over %s: %w", pin, err)
	}
	return l, nil
}

// cgroupOf returns the id of the cgroup that a link is on, 0 if that is gone.
func cgroupOf(l link.Link) uint64 {
	info, err := l.Info()
	if err != nil {
		return 0
	}
	cg := info.Cgroup()
	if cg == nil {
		return 0
	}
	return cg.CgroupId
}
