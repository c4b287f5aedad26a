package daemon

import (
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
)

// quota refuses a limit beyond what a user, all users and the machine may have. It may need a new node. The caller holds
// d.mu.
func (d *Daemon) quota(by auth.Actor, isNew bool) error {
	if isNew {
		return d.quotaOf(by, 1, 1)
	}
	return d.quotaOf(by, 1, 0)
}

// quotaOf is quota for several limits, on nodes of which some are new. The caller holds d.mu.
func (d *Daemon) quotaOf(by auth.Actor, limits, newNodes int) error {
	all := 0 // a change of present nodes needs no room
	if newNodes > 0 {
		all = d.nodes.Len() + newNodes
	}
	switch {
	case !by.Root() && limits > 0 && d.countOf(d.countsAs(by.UID), d.nodes.Owned)+limits > auth.MaxNodesPerUser:
		return request.Full("you have set as many", auth.MaxNodesPerUser, "lift some first (netnice ls), or limit yourself as a whole: netnice set --user "+identity.UserName(by.UID)+" ...")
	case !by.Root() && all > auth.MaxNodesOfUsers:
		return request.Full("users have set as many", auth.MaxNodesOfUsers, "ask the administrator to lift some: netnice ls")
	case all > auth.MaxNodes:
		return request.Full("there are as many", auth.MaxNodes, "lift some first: netnice ls")
	}
	return nil
}

// usersWish reports whether a user wants something of the node.
func (n *node) usersWish() bool {
	return n.Asks(enforce.OwnerUser) || !n.Ruled.Owners[enforce.OwnerUser].Empty()
}

// quotaOfRuled refuses a process's own node for rules beyond the quota. A user who starts many programs that match the
// administrator's rules takes nothing from others. The caller holds d.mu.
func (d *Daemon) quotaOfRuled(next *node) error {
	if next.Ruled.Owners[enforce.OwnerAdmin].Empty() {
		return d.quota(auth.Actor{UID: next.res.UID}, true)
	}
	if d.nodes.Len() >= auth.MaxNodesOfUsers {
		return request.Full("users have as many", auth.MaxNodesOfUsers, "lift some: netnice ls")
	}
	if who := d.countsAs(next.res.UID); d.countOf(who, d.nodes.Matched) >= auth.MaxRuledPerUser {
		return request.Full("processes of "+identity.UserName(who)+" have as many", auth.MaxRuledPerUser, "netnice ls")
	}
	return nil
}
