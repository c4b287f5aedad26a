package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// StatelessOfAll is the bit of the count of stateless sockets that says that more users had some than StatelessUserIDs
// can list: NN_STATELESS_OF_ALL of bpf/types.h.
const StatelessOfAll = uint32(1) << 31

// statelessBatch is how many entries one call reads. A bucket of these tables has far fewer.
const statelessBatch = 256

// StatelessCount returns how many entries the table of stateless sockets has been given since netnice came up, and
// whether StatelessUserIDs leaves users out. Sockets are stateless if they have no room for state: see bpf/stateless.h.
func (o *Object) StatelessCount() (count uint32, ofAll bool, err error) {
	var n uint32
	if err := o.StatelessNoted.Lookup(uint32(0), &n); err != nil {
		return 0, false, fmt.Errorf("read the count of stateless sockets: %w", err)
	}
	return n &^ StatelessOfAll, n&StatelessOfAll != 0, nil
}

// ListStateless returns the entries of the table of stateless sockets, by cookie. Some may be of sockets that were
// closed, or have got room for state since.
func (o *Object) ListStateless() (map[uint64]Socket, error) {
	return entries[uint64, Socket](o.StatelessSockets)
}

// StatelessRoom is the largest number of entries of ListStateless.
func (o *Object) StatelessRoom() uint32 { return o.StatelessSockets.MaxEntries() }

// StatelessUserIDs returns the users who had stateless sockets since netnice came up.
func (o *Object) StatelessUserIDs() (list []uint32, err error) {
	users, err := entries[uint32, uint8](o.StatelessUsers)
	for user := range users {
		list = append(list, user)
	}
	return list, err
}

// entries reads a hash map. It may miss entries that are made or removed meanwhile.
func entries[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	out := make(map[K]V)
	keys, values := make([]K, statelessBatch), make([]V, statelessBatch)
	var at ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&at, keys, values, nil)
		isLast := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !isLast {
			return nil, fmt.Errorf("read the map %s: %w", m, err)
		}
		for i := range n {
			out[keys[i]] = values[i]
		}
		if isLast {
			return out, nil
		}
	}
}
