package cli

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/account"
)

// caller is the user of a command, as far as it decides which processes and limits the command means.
type caller struct {
	uid   int
	admin bool // the daemon gives the caller the rights of root
	// name returns the caller's name as the owner of a limit.
	name func() string
}

// caller asks the daemon whether a user is one of its administrators. If no daemon answers, only root is one.
func (a *App) caller(ctx context.Context) caller {
	uid := a.System.EUID()
	who := caller{uid: uid, name: sync.OnceValue(func() string { return userName(ctx, uid) })}
	if who.uid == 0 {
		who.admin = true
		return who
	}
	c := client.New(a.socket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if status, err := c.Status(ctx); err == nil {
		who.admin = status.Administrator
	}
	return who
}

// owns reports whether the caller may limit a process of a user.
func (c caller) owns(uid uint32) bool { return c.admin || int(uid) == c.uid }

// userName returns a user's name, or the number of a user without a name.
func userName(ctx context.Context, uid int) string {
	if u, err := account.Machine().UserOf(ctx, uint32(uid)); err == nil {
		return u.Name
	}
	return strconv.Itoa(uid)
}

// mayHaveSet reports whether the caller may have a limit on a node, and lift it. Only the daemon knows the owners of a
// node for certain; mayHaveSet excludes the nodes on which the caller surely has set nothing.
func (c caller) mayHaveSet(n *api.Node) bool {
	if c.owns(n.UID) || n.Subject.Kind == api.KindGroup {
		return true
	}
	return slices.ContainsFunc(n.Limits, func(l api.Limit) bool { return l.Owner == c.name() })
}

// sharesWithOthers reports whether another owner has set a limit on a node by a command.
func (c caller) sharesWithOthers(n *api.Node) bool {
	return slices.ContainsFunc(n.Limits, func(l api.Limit) bool { return l.Rule == nil && l.Owner != c.name() })
}

// powers counts the shares of the processors that the caller may lift.
func (c caller) powers(list []api.Power) int {
	if c.admin {
		return len(list)
	}
	n := 0
	for _, p := range list {
		if slices.Contains(p.Owners, c.name()) {
			n++
		}
	}
	return n
}
