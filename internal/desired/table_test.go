package desired

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// limited is a node in these tests.
type limited struct {
	id             uint32
	res            identity.Resolved
	scope          *Scope
	owner, matched User
}

func (l *limited) Keys() Keys {
	k := KeysOf(l.id, l.res, l.scope)
	k.Owner, k.Matched = l.owner, l.matched
	return k
}

// randomSubject returns one of few subjects, so that many are the same or nearly the same.
func randomSubject(r *rand.Rand) identity.Resolved {
	n := r.Uint64N(4)
	subject := func(kind api.Kind) api.Subject { return api.Subject{Kind: kind, ID: fmt.Sprint(n)} }
	switch r.IntN(8) {
	case 0:
		return identity.Resolved{Kind: enforce.KindHost, Subject: api.Subject{Kind: api.KindHost}}
	case 1:
		return identity.Resolved{Kind: enforce.KindUser, Subject: subject(api.KindUser), Key: n}
	case 2: // a process that started at another tick is another one
		return identity.Resolved{Kind: enforce.KindTree, Subject: subject(api.KindPID), Key: n, StartBoottimeNS: r.Uint64N(4) * identity.TickNS / 2}
	case 3:
		return identity.Resolved{Kind: enforce.KindTree, Subject: subject(api.KindGroup), StartBoottimeNS: n * identity.TickNS}
	case 4: // the key 0 is one that does not run
		return identity.Resolved{Kind: enforce.KindCgroup, Subject: subject(api.KindUnit), Key: r.Uint64N(3)}
	case 5:
		return identity.Resolved{Kind: enforce.KindCgroup, Subject: subject(api.KindCgroup), Key: r.Uint64N(3)}
	case 6:
		return identity.Resolved{Kind: enforce.KindLink, Subject: subject(api.KindLink), Key: r.Uint64N(3)}
	}
	return identity.Resolved{Kind: enforce.KindDestination, Subject: subject(api.KindTo), Key: r.Uint64N(9)}
}

func randomUser(r *rand.Rand) User {
	if r.IntN(2) == 0 {
		return User{}
	}
	return User{UID: r.Uint32N(4), Known: true}
}

// change gives the node other keys.
func (l *limited) change(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		l.owner, l.matched = randomUser(r), randomUser(r)
	case 1: // its unit or device goes, or runs again
		l.res.Key = r.Uint64N(3)
	case 2:
		l.scope = &Scope{PID: 1 + r.IntN(3), StartNS: r.Uint64N(4) * identity.TickNS / 2}
		if r.IntN(2) == 0 {
			l.scope = nil
		}
	default:
		l.res = randomSubject(r)
	}
}

// checkTable compares a table with a search through all nodes.
func checkTable(t *testing.T, r *rand.Rand, table *Table[*limited], all []*limited) {
	t.Helper()
	where := func(match func(*limited) bool) []*limited {
		list := []*limited{}
		for _, n := range all {
			if match(n) {
				list = append(list, n)
			}
		}
		slices.SortFunc(list, func(a, b *limited) int { return cmp.Compare(a.id, b.id) })
		return list
	}
	first := func(lists ...[]*limited) *limited {
		for _, list := range lists {
			if len(list) > 0 {
				return list[0]
			}
		}
		return nil
	}
	everything := where(func(*limited) bool { return true })
	require.Equal(t, len(all), table.Len())
	require.ElementsMatch(t, all, slices.Collect(table.All()))
	slices.SortStableFunc(everything, func(a, b *limited) int { return cmp.Compare(b.res.Kind, a.res.Kind) })
	require.Equal(t, everything, table.Sorted())

	res := randomSubject(r)
	same := where(func(n *limited) bool { return n.res.Same(res) })
	named := where(func(n *limited) bool { return n.res.Subject == res.Subject })
	require.Equal(t, same, table.Same(res), "%+v", res)
	require.Equal(t, named, table.WithSubject(res.Subject))
	require.Same(t, first(named), table.FindName(res.Subject))
	if !res.Named() {
		named = nil
	}
	require.Same(t, first(same, named), table.Find(res))

	pid, start := 1+r.IntN(3), r.Uint64N(4)*identity.TickNS/2
	require.Same(t, first(where(func(n *limited) bool {
		return n.scope != nil && n.scope.PID == pid && identity.SameStart(n.scope.StartNS, start)
	})), table.ScopeOf(pid, start))

	from, to := r.Uint32N(4), r.Uint32N(4)
	has := func(u User) bool { return u.Known && u.UID >= from && u.UID <= to }
	require.Len(t, where(func(n *limited) bool { return has(n.owner) }), table.Owned(from, to))
	require.Len(t, where(func(n *limited) bool { return has(n.matched) }), table.Matched(from, to))
	id := r.Uint32N(40)
	require.Same(t, first(where(func(n *limited) bool { return n.id == id })), table.Get(id))
}

// Whatever is put, changed and removed, the table finds what a search through all nodes finds.
func TestTable(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		table := NewTable[*limited]()
		var all []*limited
		for range 500 {
			switch some := len(all); {
			case some == 0 || some < 40 && r.IntN(3) == 0:
				n := &limited{res: randomSubject(r)}
				n.id = r.Uint32N(40)
				for table.Get(n.id) != nil {
					n.id = (n.id + 1) % 40
				}
				all = append(all, n)
				table.Put(n)
			case r.IntN(4) == 0:
				i := r.IntN(some)
				table.Remove(all[i].id)
				all = slices.Delete(all, i, i+1)
			default:
				n := all[r.IntN(some)]
				n.change(r)
				table.Put(n)
				table.Put(n) // changes nothing
			}
			checkTable(t, r, table, all)
		}
		for _, n := range all {
			table.Remove(n.id)
			table.Remove(n.id)
		}
		table.order, table.owned.uids, table.matched.uids = nil, nil, nil // they keep their space
		require.Equal(t, NewTable[*limited](), table, "nothing is left in an index")
	}
}

// The time of a search and of a change does not grow with the number of nodes.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := NewTable[*limited]()
			user := func(uid int) identity.Resolved { return identity.Resolved{Kind: enforce.KindUser, Key: uint64(uid)} }
			for i := range n {
				table.Put(&limited{id: uint32(i + 1), res: user(i)})
			}
			i := 0
			for b.Loop() {
				i++
				found := table.Find(user(i % n))
				found.owner.Known = !found.owner.Known
				table.Put(found)
			}
		})
	}
}
