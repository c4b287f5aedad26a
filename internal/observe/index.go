package observe

import (
	"cmp"
	"hash/fnv"
	"io"
	"maps"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
)

// A snapshot has an index of the subjects of its nodes, and of the other users that they concern. Thus neither the
// admission of a guarantee nor the answer about one node searches all nodes.

// keyKind is a kind of keys of the index.
type keyKind uint8

const (
	keyHost      keyKind = iota
	keyLink              // any link
	keyUser              // the user with this number
	keyCgroup            // the cgroup with this folder
	keyTree              // the process with this number, and its descendants
	keyUnder             // a part of the traffic of the node with this number
	keyRule              // a rule's limit on a destination, for the node with this number; 0 = for each that the rule matches
	keyEverybody         // a limit on a destination for all users whom its owner may limit
	keyGuarantee         // any node with a guarantee
)

// indexKey is what nodes are found by.
type indexKey struct {
	kind   keyKind
	number uint64
	folder string
}

// indexKeys returns what a node is found by; a nil node is not found.
func (n *Node) indexKeys() (list []indexKey) {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case enforce.KindHost:
		list = append(list, indexKey{kind: keyHost})
	case enforce.KindLink:
		list = append(list, indexKey{kind: keyLink})
	case enforce.KindUser:
		list = append(list, indexKey{kind: keyUser, number: uint64(n.UID)})
	case enforce.KindTree:
		list = append(list, indexKey{kind: keyTree, number: n.Key})
	case enforce.KindCgroup:
		if n.Dir != "" {
			list = append(list, indexKey{kind: keyCgroup, folder: n.Dir})
		}
	}
	if n.To != nil && n.To.Under != 0 {
		list = append(list, indexKey{kind: keyUnder, number: uint64(n.To.Under)})
	}
	if n.Rules.Destined != 0 {
		list = append(list, indexKey{kind: keyRule, number: uint64(uint32(n.Key))})
	}
	if n.isEverybodys() {
		list = append(list, indexKey{kind: keyEverybody})
	}
	if n.Guaranteed != [enforce.Directions]uint64{} {
		list = append(list, indexKey{kind: keyGuarantee})
	}
	return list
}

// nodeIndex holds the ids of nodes by key, in ascending order. Its parts and lists are never changed: copies share
// them.
type nodeIndex [shards]map[indexKey][]uint32

// shardOf returns the part of the index that has a key.
func shardOf(k indexKey) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, k.folder) // it never fails
	return (h.Sum64() + k.number + uint64(k.kind)) % shards
}

// at returns the ids of the nodes with a key.
func (x *nodeIndex) at(k indexKey) []uint32 { return x[shardOf(k)][k] }

// first returns the lowest id of the nodes with a key, 0 if there is none.
func (x *nodeIndex) first(k indexKey) uint32 {
	if ids := x.at(k); len(ids) > 0 {
		return ids[0]
	}
	return 0
}

// indexChange changes a copy of an index.
type indexChange struct {
	index  *nodeIndex
	copied [shards]bool
}

// move gives a node other keys. It returns how many more nodes are on cgroups.
func (c *indexChange) move(id uint32, was, is []indexKey) (cgroups int) {
	if slices.Equal(was, is) {
		return 0
	}
	for _, k := range was {
		if !slices.Contains(is, k) {
			ids := slices.Clone(c.index.at(k))
			at, found := slices.BinarySearch(ids, id)
			if found {
				ids = slices.Delete(ids, at, at+1)
			}
			c.put(k, ids)
			cgroups -= countOf(k.kind == keyCgroup)
		}
	}
	for _, k := range is {
		if !slices.Contains(was, k) {
			ids := c.index.at(k)
			at, _ := slices.BinarySearch(ids, id)
			c.put(k, slices.Insert(slices.Clone(ids), at, id))
			cgroups += countOf(k.kind == keyCgroup)
		}
	}
	return cgroups
}

func (c *indexChange) put(k indexKey, ids []uint32) {
	part := shardOf(k)
	if !c.copied[part] {
		c.copied[part] = true
		if c.index[part] = maps.Clone(c.index[part]); c.index[part] == nil {
			c.index[part] = make(map[indexKey][]uint32)
		}
	}
	if len(ids) == 0 {
		delete(c.index[part], k)
		return
	}
	c.index[part][k] = ids
}

// nodesWith returns the nodes with any of several keys, outermost kind first, then by id.
func (s *Snapshot) nodesWith(keys ...indexKey) (list []*Node) {
	for _, k := range keys {
		for _, id := range s.index.at(k) {
			list = append(list, s.Node(id))
		}
	}
	if len(keys) > 1 {
		slices.SortFunc(list, compareNodes)
		list = slices.Compact(list)
	}
	return list
}

// compareNodes orders nodes: outermost kind first, then by id.
func compareNodes(a, b *Node) int {
	return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.ID, b.ID))
}
