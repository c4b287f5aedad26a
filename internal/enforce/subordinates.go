package enforce

import "slices"

// Subordinates is a range of user ids that a user was given for namespaces of their own. These ids count as that
// user.
type Subordinates struct{ First, Last, Owner uint32 }

// OwnerOf returns the user that a user id counts as, by sorted ranges.
func OwnerOf(uid uint32, list []Subordinates) uint32 {
	i, found := slices.BinarySearchFunc(list, uid, func(r Subordinates, uid uint32) int {
		switch {
		case r.Last < uid:
			return -1
		case r.First > uid:
			return 1
		}
		return 0
	})
	if found {
		return list[i].Owner
	}
	return uid
}
