package pacing

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// pathOf returns a path of nodes with their generations.
func pathOf(hops ...bpf.Hop) (path [bpf.PathMax]bpf.Hop) {
	copy(path[:], hops)
	return path
}

// Only nodes that are still in use count for a stateless socket, and not a socket's own. One that has got room since is
// left out.
func TestStatelessSockets(t *testing.T) {
	k := &Kernel{nodeTables: nodeTables{nodes: map[uint32]bpf.Node{
		3: {Kind: bpf.KindTree, Generation: 5}, 4: {Kind: bpf.KindUser, Generation: 6}, 9000: {Kind: bpf.KindSocket, Generation: 7},
	}}}
	table := map[uint64]bpf.Socket{
		11: {Tgid: 77, StartBoottimeNs: 9, Uid: 1000, Path: pathOf(bpf.Hop{Node: 9000, Generation: 7}, bpf.Hop{Node: 3, Generation: 5}, bpf.Hop{Node: 4, Generation: 6})},
		12: {Tgid: 78, Uid: 1000, Flags: bpf.SocketLoopback, Path: pathOf(bpf.Hop{Node: 3, Generation: 4}, bpf.Hop{Node: 4, Generation: 6})}, // 3 was another limit
		13: {Tgid: 79, Uid: 1001, Path: pathOf(bpf.Hop{Node: 3, Generation: 4})},
		14: {Tgid: 79, Uid: 1001, Path: pathOf(bpf.Hop{Node: 4, Generation: 6})},
	}
	list := withoutState(k.statelessSockets(table), []bpf.SocketRecord{{SocketSeen: bpf.SocketSeen{Cookie: 14}}})
	require.Equal(t, []enforce.StatelessSocket{
		{Cookie: 11, PID: 77, StartBoottimeNS: 9, UID: 1000, Nodes: []uint32{3, 4}},
		{Cookie: 12, PID: 78, UID: 1000, Nodes: []uint32{4}, Loopback: true},
	}, list)
	require.Equal(t, map[uint32]int{3: 1, 4: 2}, enforce.StatelessStats{Sockets: list}.OnNodes())

	users, err := k.statelessUsers(table, false)
	require.NoError(t, err)
	require.Equal(t, map[uint32]enforce.StatelessUser{1000: {Noted: 2}, 1001: {Noted: 2}}, users)
}

// While no socket was noted, one number is read: the other maps are missing here, and a look at them would panic. Once
// half of the table was noted, the kernel side names the users whose sockets may have been forgotten.
func TestStatelessReadsNothingInVain(t *testing.T) {
	testutil.RequireRoot(t)
	made := func(spec ebpf.MapSpec) *ebpf.Map {
		t.Helper()
		m, err := ebpf.NewMap(&spec)
		require.NoError(t, err)
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	k := &Kernel{obj: new(bpf.Object)}
	k.obj.StatelessNoted = made(ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	got, err := k.Stateless()
	require.NoError(t, err)
	require.Empty(t, got)

	const room, uid = 1024, 1000
	k.obj.StatelessSockets = made(ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 8, ValueSize: uint32(binary.Size(bpf.Socket{})), MaxEntries: room})
	k.obj.StatelessUsers = made(ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: room})
	cookies := make([]uint64, room/2)
	for i := range cookies {
		cookies[i] = uint64(i + 1)
	}
	values := slices.Repeat([]bpf.Socket{{Uid: uid}}, len(cookies))
	_, err = k.obj.StatelessSockets.BatchUpdate(cookies, values, nil)
	require.NoError(t, err)
	for _, user := range []uint32{uid, uid + 1} {
		require.NoError(t, k.obj.StatelessUsers.Put(user, uint8(1)))
	}
	for noted, want := range map[uint32]map[uint32]enforce.StatelessUser{
		room/2 - 1:                        {uid: {Noted: room / 2}},
		room / 2:                          {uid: {Noted: room / 2, Forgets: true}, uid + 1: {Forgets: true}},
		room/2 | bpf.StatelessOfAll:       {uid: {Noted: room / 2, Forgets: true}, uid + 1: {Forgets: true}},
		(room/2 - 1) | bpf.StatelessOfAll: {uid: {Noted: room / 2}},
	} {
		require.NoError(t, k.obj.StatelessNoted.Put(uint32(0), noted))
		got, err := k.Stateless()
		require.NoError(t, err)
		require.Equal(t, want, got.Users, "%d noted", noted)
		require.Empty(t, got.Sockets, "no limit holds for them")
		require.Equal(t, noted == room/2|bpf.StatelessOfAll, got.OfAll)
		require.Equal(t, noted&^bpf.StatelessOfAll == room/2, got.Forgets(uid))
		require.Equal(t, got.OfAll, got.Forgets(uid+2))
	}
}
