package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

const (
	stateName = "state.json"
	// stateVersion is the newest form of the file that is understood. A field
	// more is a new version.
	stateVersion = 1
)

// state is the file that remembers what is wanted.
type state struct {
	Version int         `json:"version"`
	BootID  string      `json:"boot_id"`
	NextID  uint32      `json:"next_id"`
	Nodes   []savedNode `json:"nodes"`
}

type savedNode struct {
	ID      uint32       `json:"id"`
	Subject api.Subject  `json:"subject"`
	Kind    enforce.Kind `json:"kind"`
	Key     uint64       `json:"key"`
	StartNS uint64       `json:"start_boottime_ns,omitempty"`
	UID     uint32       `json:"uid"`
	Name    string       `json:"name"`
	Dir     string       `json:"dir,omitempty"`
	Admin   wish         `json:"admin"`
	User    wish         `json:"user"`
	UserUID uint32       `json:"user_uid,omitempty"`
	Since   time.Time    `json:"since"`
	Scope   *scope       `json:"scope,omitempty"`
}

func (n *node) saved() savedNode {
	return savedNode{
		ID: n.id, Subject: n.res.Subject, Kind: n.res.Kind, Key: n.res.Key, StartNS: n.res.StartBoottimeNS,
		UID: n.res.UID, Name: n.res.Name, Dir: n.res.Dir,
		Admin: n.wishes[enforce.OwnerAdmin], User: n.wishes[enforce.OwnerUser], UserUID: n.userUID,
		Since: n.since, Scope: n.scope,
	}
}

func (s savedNode) node() *node {
	n := &node{
		id: s.ID,
		res: identity.Resolved{
			Subject: s.Subject, Kind: s.Kind, Key: s.Key, StartBoottimeNS: s.StartNS,
			UID: s.UID, Name: s.Name, Dir: s.Dir,
		},
		wishes: wishes{enforce.OwnerAdmin: s.Admin, enforce.OwnerUser: s.User},
		since:  s.Since,
		scope:  s.Scope,
	}
	if !s.User.empty() {
		n.setUser(s.UserUID)
	}
	return n
}

// loadState reads the file; nil without an error if there is none. An error
// names the file and what to do, and means that nothing may be changed.
func loadState(dir string) (*state, error) {
	path := filepath.Join(dir, stateName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, stateError(path, err)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, stateError(path, err)
	}
	if head.Version > stateVersion {
		return nil, stateError(path, fmt.Errorf("it was written by a newer netnice (its version is %d, this one knows %d)", head.Version, stateVersion))
	}
	var s state
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return nil, stateError(path, err)
	}
	if err := s.check(); err != nil {
		return nil, stateError(path, err)
	}
	return &s, nil
}

func (s *state) check() error {
	if s.Version < 1 {
		return fmt.Errorf("version %d is unknown", s.Version)
	}
	seen := make(map[uint32]bool)
	for _, n := range s.Nodes {
		switch {
		case n.ID == 0 || n.ID >= enforce.MaxNodes || seen[n.ID]:
			return fmt.Errorf("node id %d is out of range or there twice", n.ID)
		case n.Admin.empty() && n.User.empty():
			return fmt.Errorf("node %d wants nothing", n.ID)
		case !known(n.Kind):
			return fmt.Errorf("node %d is of the unknown kind %d", n.ID, n.Kind)
		}
		seen[n.ID] = true
	}
	return nil
}

func stateError(path string, err error) error {
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("the state file %s cannot be used: %v; limits in force stay as they are", path, err),
		Hint:    fmt.Sprintf("put it aside and start again, the limits in force are then adopted: sudo mv %s %s.bad", path, path),
		Cause:   err,
	}
}

// save writes the file; it is there whole, or as it was before. The caller
// holds d.mu.
func (d *Daemon) save() error {
	s := state{Version: stateVersion, BootID: d.boot, NextID: d.nextID, Nodes: []savedNode{}}
	for _, n := range d.sorted() {
		s.Nodes = append(s.Nodes, n.saved())
	}
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	path := filepath.Join(d.opts.StateDir, stateName)
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(d.opts.StateDir)); err != nil {
		d.dirty = true
		return fmt.Errorf("write the state: %w", err)
	}
	d.dirty = false
	return nil
}

// forget removes the file.
func (d *Daemon) forget() error {
	err := os.Remove(filepath.Join(d.opts.StateDir, stateName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the state: %w", err)
	}
	return nil
}

// sorted returns the nodes, outermost kind first, then by id.
func (d *Daemon) sorted() []*node {
	list := make([]*node, 0, len(d.nodes))
	for _, n := range d.nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *node) int {
		if a.res.Kind != b.res.Kind {
			return int(b.res.Kind) - int(a.res.Kind)
		}
		return int(a.id) - int(b.id)
	})
	return list
}
