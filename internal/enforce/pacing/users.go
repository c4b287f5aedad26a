package pacing

import (
	"fmt"
	"slices"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// SetSubordinates implements enforce.Members.
func (k *Kernel) SetSubordinates(list []enforce.Subordinates) error {
	if len(list) > bpf.MaxSubordinates {
		return fmt.Errorf("ranges of user ids: %d, and there is room for %d", len(list), bpf.MaxSubordinates)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range list {
		entry := bpf.Subordinate{First: r.First, Last: r.Last, Owner: r.Owner}
		if err := k.obj.Subordinates.Put(uint32(i), &entry); err != nil {
			return fmt.Errorf("write the ranges of user ids: %w", err)
		}
	}
	k.subordinates, k.ranges = uint32(len(list)), slices.Clone(list)
	return k.putPolicy()
}

// CountsAs returns the user that a user id counts as. Only ids that a user was given for namespaces count as another.
func (k *Kernel) CountsAs(uid uint32) uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return enforce.OwnerOf(uid, k.ranges)
}
