package pacing

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Stateless implements enforce.Figures. While no socket was ever noted, it reads one number.
func (k *Kernel) Stateless() (out enforce.StatelessStats, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	noted, ofAll, err := k.obj.StatelessCount()
	if err != nil || noted == 0 {
		return out, err
	}
	table, err := k.obj.ListStateless()
	if err != nil {
		return out, err
	}
	forgets := noted >= k.obj.StatelessRoom()/2 // nn_stateless_lost compares the same numbers.
	out.OfAll = forgets && ofAll
	if out.Users, err = k.statelessUsers(table, forgets); err != nil {
		return out, err
	}
	if out.Sockets = k.statelessSockets(table); len(out.Sockets) == 0 {
		return out, nil
	}
	// The table keeps a socket that has got room since.
	list, err := k.obj.ListEverySocket()
	if err != nil {
		return out, fmt.Errorf("list sockets: %w", err)
	}
	out.Sockets = withoutState(out.Sockets, list)
	return out, nil
}

// statelessUsers counts the entries of the table by user. If the table forgets, it adds the users that have no entry any
// more.
func (k *Kernel) statelessUsers(table map[uint64]bpf.Socket, forgets bool) (map[uint32]enforce.StatelessUser, error) {
	users := make(map[uint32]enforce.StatelessUser)
	for _, s := range table {
		u := users[s.Uid]
		u.Noted++
		users[s.Uid] = u
	}
	if !forgets {
		return users, nil
	}
	ids, err := k.obj.StatelessUserIDs()
	if err != nil {
		return nil, err
	}
	for _, uid := range ids {
		u := users[uid]
		u.Forgets = true
		users[uid] = u
	}
	return users, nil
}

// statelessSockets returns the entries of the table for which a limit holds. The caller holds k.mu.
func (k *Kernel) statelessSockets(table map[uint64]bpf.Socket) (list []enforce.StatelessSocket) {
	for cookie, s := range table {
		if nodes := k.limitsOn(s); len(nodes) > 0 {
			list = append(list, enforce.StatelessSocket{
				Cookie: cookie, PID: s.Tgid, StartBoottimeNS: s.StartBoottimeNs, UID: s.Uid, Nodes: nodes, Loopback: s.Flags&bpf.SocketLoopback != 0,
			})
		}
	}
	slices.SortFunc(list, func(a, b enforce.StatelessSocket) int { return cmp.Compare(a.Cookie, b.Cookie) })
	return list
}

// withoutState drops the sockets that have state of their own.
func withoutState(list []enforce.StatelessSocket, having []bpf.SocketRecord) []enforce.StatelessSocket {
	has := make(map[uint64]bool, len(having))
	for _, r := range having {
		has[r.Cookie] = true
	}
	return slices.DeleteFunc(list, func(s enforce.StatelessSocket) bool { return has[s.Cookie] })
}
