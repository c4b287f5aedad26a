// Package desired owns the desired state: the table of nodes with its indexes, the record of each node, and the state file,
// which is a snapshot of the records and a journal of changes. It resolves no subject, and brings nothing into force.
package desired

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

const (
	// FileName is the state file's name in the state folder.
	FileName = "state.json"
	// Version is the newest form of the file that this package understands. Each added field means a new version.
	Version = 13
	// summedVersion is the first version whose records have checksums.
	summedVersion = 10
	// MetVersion is the first version that says which addresses no owner has named.
	MetVersion = 11
)

// State is the desired state in the form of the file. Version 1 of the file was this object. Since version 2 it is a
// heading and then a line for each change. So a change costs the same whatever the number of limits. File.Save writes
// the file again without outdated lines. Since version 10 each line begins with the checksum of all
// records up to it. The heading says how many records there are, and is overwritten with each change. So a truncated
// file is noticed, also one that ends between two records.
type State struct {
	Version int      `json:"version"`
	BootID  string   `json:"boot_id"`
	NextID  uint32   `json:"next_id"`
	Nodes   []Record `json:"nodes"`

	// Damage is the damage of the file, nil = it was whole.
	Damage error `json:"-"`
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

// Change is one line of the journal: a record as it is now, or the id of a record that is gone.
type Change struct {
	// NextID is the next free id after the change. File.Append sets it.
	NextID uint32  `json:"next_id,omitempty"`
	Node   *Record `json:"node,omitempty"`
	Gone   uint32  `json:"gone,omitempty"`
}

// Record is a subject with the limits that its owners request for it.
type Record struct {
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
	Scope   *Scope       `json:"scope,omitempty"`
	Group   string       `json:"group,omitempty"`
	Rules   *Rules       `json:"rules,omitempty"` // since version 3
	To      *Destination `json:"to,omitempty"`    // since version 8, like the next fields
	// Timed holds the limits for a time; since version 12.
	Timed *[enforce.Owners]Timed `json:"timed,omitempty"`
	// Marker says that destination limits are under the node.
	Marker bool `json:"marker,omitempty"`
}

// Destination says more of a limit on a part of the traffic. The subject names the part.
type Destination struct {
	Scope uint32 `json:"scope,omitempty"` // the node that it is under
	// Names holds the last addresses of the names.
	Names map[string][]netip.Addr `json:"names,omitempty"`
	Each  uint32                  `json:"each,omitempty"` // since version 9
	Met   bool                    `json:"met,omitempty"`  // since version 11
}

// Scope is a cgroup that was made for one process, so that its children stay limited whatever becomes of their parents.
type Scope struct {
	PID     int    `json:"pid"`
	StartNS uint64 `json:"start_boottime_ns"`
	UID     uint32 `json:"uid"` // the user who requested it
	// Made says that the cgroup is a folder of netnice's own. Otherwise it is a scope unit, which systemd removes
	// itself.
	Made   bool   `json:"made,omitempty"`
	Origin string `json:"origin,omitempty"` // cgroup before, below the mount; Made only
}

// Timed is one owner's limit for a time. The zero value is none.
type Timed struct {
	Limit limit.Limit `json:"limit"`
	limit.End
}

// IsOver reports whether the limit has ended at a time on CLOCK_BOOTTIME.
func (t *Timed) IsOver(bootNS uint64) bool { return *t != Timed{} && bootNS >= t.BoottimeNS }

// Now returns the present moment.
func Now() limit.Moment {
	return limit.Moment{BoottimeNS: identity.BootTimeNS(), UnixNS: time.Now().UnixNano()}
}

// findEnds finds the ends of limits and reservations in this boot, if another boot has written the file, and brings those
// that a former release has written into the form of this one.
func (s *State) findEnds(boot string, now limit.Moment) {
	find := func(e limit.End) limit.End {
		if s.BootID == boot {
			return e
		}
		return e.InBootOf(now)
	}
	for i := range s.Nodes {
		r := &s.Nodes[i]
		for _, l := range []*limit.Limit{&r.Admin, &r.User} {
			l.Reserve.End = find(l.Reserve.End)
			l.Reserve = l.Reserve.InThisForm(now)
		}
		if r.Timed != nil {
			for owner := range r.Timed {
				r.Timed[owner].End = find(r.Timed[owner].End)
			}
		}
	}
}
