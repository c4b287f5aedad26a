package daemon

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

const (
	stateName = "state.json"
	// stateVersion is the newest form of the file that this daemon understands. Each added field means a new version.
	stateVersion = 12
	// summedVersion is the first version whose records have checksums.
	summedVersion = 10
	// metVersion is the first version that says which addresses no owner has named.
	metVersion = 11
)

// state is the desired state in the form of the file. Version 1 of the file was this object. Since version 2 it is a
// heading and then a record for each change, one line each. So a change costs the same whatever the number of limits.
// save writes the file again without outdated records. Since version 10 each line begins with the checksum of all
// records up to it. The heading says how many records there are, and is overwritten with each change. So a truncated
// file is noticed, also one that ends between two records.
type state struct {
	Version int         `json:"version"`
	BootID  string      `json:"boot_id"`
	NextID  uint32      `json:"next_id"`
	Nodes   []savedNode `json:"nodes"`

	damage error // the damage of the file, nil = it was whole
}

// heading is the first line of the file.
type heading struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"`
	NextID  uint32 `json:"next_id"`
	// Nodes is the number of records that were written with the heading, and so before the file got its name. A file
	// with fewer records was truncated.
	Nodes int `json:"nodes"`
	// Records is the number of all records. Synced is the number of those that have reached the disk: the daemon does
	// not wait for the disk after a change of a process's limit. Both exist since version 10.
	Records int `json:"records,omitempty"`
	Synced  int `json:"synced,omitempty"`
}

// behind in place of the number of records says that not all of the desired state could be written.
const behind = 999_999_999

// line returns the heading as the file has it, with the same length whatever the numbers.
func (h heading) line() []byte {
	boot := strconv.Quote(h.BootID) // letters, digits and dashes
	return fmt.Appendf(nil, "{\"version\":%d,\"boot_id\":%s,\"next_id\":%10d,\"nodes\":%10d,\"records\":%10d,\"synced\":%10d}\n",
		h.Version, boot, h.NextID, h.Nodes, h.Records, h.Synced)
}

// record is one change: a node as it is now, or the id of a node that is gone.
type record struct {
	NextID uint32     `json:"next_id,omitempty"`
	Node   *savedNode `json:"node,omitempty"`
	Gone   uint32     `json:"gone,omitempty"`
}

// stateFile is the file as this daemon wrote it last.
type stateFile struct {
	info    fs.FileInfo // nil: not written yet, or not as it should be
	size    int64
	heading heading
	sum     uint32 // the checksum of all records
}

// spare is the number of outdated records that may exist beside twice the number of valid ones.
const spare = 256

type savedNode struct {
	ID      uint32       `json:"id"`
	Subject api.Subject  `json:"subject"`
	Kind    enforce.Kind `json:"kind"`
	Key     uint64       `json:"key"`
	StartNS uint64       `json:"start_boottime_ns,omitempty"`
	UID     uint32       `json:"uid"`
	Name    string       `json:"name"`
	Dir     string       `json:"dir,omitempty"`
	Admin   limit.Limit  `json:"admin"`
	User    limit.Limit  `json:"user"`
	UserUID uint32       `json:"user_uid,omitempty"`
	Since   time.Time    `json:"since"`
	Scope   *scope       `json:"scope,omitempty"`
	Group   string       `json:"group,omitempty"`
	Rules   *ruled       `json:"rules,omitempty"` // since version 3
	To      *savedToward `json:"to,omitempty"`    // since version 8, like the next fields
	// Timed holds the limits for a time; since version 12.
	Timed *[enforce.Owners]timed `json:"timed,omitempty"`
	// Marker says that destination limits are under the node.
	Marker bool `json:"marker,omitempty"`
}

func (n *node) saved() savedNode {
	s := savedNode{
		ID: n.id, Subject: n.res.Subject, Kind: n.res.Kind, Key: n.res.Key, StartNS: n.res.StartBoottimeNS,
		UID: n.res.UID, Name: n.res.Name, Dir: n.res.Dir,
		Admin: n.requested[enforce.OwnerAdmin], User: n.requested[enforce.OwnerUser], UserUID: n.userUID,
		Since: n.since, Scope: n.scope, Group: n.group,
	}
	if !n.ruled.empty() || n.ruled.Outer != 0 {
		s.Rules = &n.ruled
	}
	if n.to != nil {
		s.To = &savedToward{Names: n.to.names, Each: n.to.each, Met: n.to.met}
		if n.to.scope != nil {
			s.To.Scope = n.to.scope.id
		}
	}
	s.Marker = n.holds > 0
	if n.timed != [enforce.Owners]timed{} {
		s.Timed = &n.timed
	}
	return s
}

func (s savedNode) node() *node {
	n := &node{
		id: s.ID,
		res: identity.Resolved{
			Subject: s.Subject, Kind: s.Kind, Key: s.Key, StartBoottimeNS: s.StartNS,
			UID: s.UID, Name: s.Name, Dir: s.Dir,
		},
		requested: limit.Owners{enforce.OwnerAdmin: s.Admin, enforce.OwnerUser: s.User},
		since:     s.Since,
		scope:     s.Scope,
		group:     s.Group,
		marker:    s.Marker,
	}
	if s.Timed != nil {
		n.timed = *s.Timed
	}
	if s.To != nil {
		n.to, n.scopeID = &toward{names: s.To.Names, each: s.To.Each, met: s.To.Met}, s.To.Scope
		n.to.selector, _, _ = destination.Parse(s.Subject.ID) // check has parsed it before
	}
	if s.Rules != nil {
		n.ruled = *s.Rules
		for owner := range n.ruled.Owners {
			if o := &n.ruled.Owners[owner]; o.Facts == nil && len(o.Rules) > 0 {
				o.Facts = n.ruled.Facts
			}
		}
		n.ruled.Facts = nil
	}
	if n.asks(enforce.OwnerUser) || !n.ruled.Owners[enforce.OwnerUser].empty() {
		n.setUser(s.UserUID)
	}
	return n
}

// change returns the record of a node as it is now.
func (n *node) change() record {
	saved := n.saved()
	return record{Node: &saved}
}

// lasting reports whether the limit outlives this boot: a process does not.
func (n *node) lasting() bool {
	if n.to != nil {
		return n.to.scope == nil || n.to.scope.lasting()
	}
	return n.res.Kind != enforce.KindTree && n.res.Kind != enforce.KindDestination
}

func (d *Daemon) statePath() string { return filepath.Join(d.opts.StateDir, stateName) }

// keepNode adds a node. The caller holds d.mu.
func (d *Daemon) keepNode(n *node) {
	d.nodes[n.id] = n
	d.touch(n)
	d.nodesMoved()
}

// forgetNode removes a node. The caller holds d.mu.
func (d *Daemon) forgetNode(id uint32) {
	delete(d.nodes, id)
	d.touchID(id)
	d.nodesMoved()
}

// nodesMoved drops the order of the nodes. The caller holds d.mu.
func (d *Daemon) nodesMoved() { d.inOrder = nil }

// sorted returns the nodes, outermost kind first, then by id. The caller may change the list, and holds d.mu.
func (d *Daemon) sorted() []*node {
	if d.inOrder == nil || len(d.inOrder) != len(d.nodes) {
		d.inOrder = slices.SortedFunc(maps.Values(d.nodes), func(a, b *node) int {
			return cmp.Or(cmp.Compare(b.res.Kind, a.res.Kind), cmp.Compare(a.id, b.id))
		})
	}
	return slices.Clone(d.inOrder)
}
