package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

const (
	stateName = "state.json"
	// stateVersion is the newest form of the file that is understood. A field
	// more is a new version.
	stateVersion = 9
)

// state is what is wanted, as the file remembers it. Version 1 of the file was
// this object. Since version 2 it is a heading and then a record for each
// change, a line each, so that a change costs the same whatever else stands;
// save writes it anew without what is outdated.
type state struct {
	Version int         `json:"version"`
	BootID  string      `json:"boot_id"`
	NextID  uint32      `json:"next_id"`
	Nodes   []savedNode `json:"nodes"`
}

// heading is the first line of the file.
type heading struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"`
	NextID  uint32 `json:"next_id"`
	// Nodes is how many records follow that were written with it, and so before
	// the file got its name: with fewer it was cut.
	Nodes int `json:"nodes"`
}

// record is one change: a node as it is now, or the id of one that is gone.
type record struct {
	NextID uint32     `json:"next_id,omitempty"`
	Node   *savedNode `json:"node,omitempty"`
	Gone   uint32     `json:"gone,omitempty"`
}

// stateFile is the file as this daemon wrote it last.
type stateFile struct {
	info    fs.FileInfo // nil: not written yet, or not as it should be
	size    int64
	records int
}

// spare is how many outdated records may stand beside twice the valid ones.
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
	Admin   wish         `json:"admin"`
	User    wish         `json:"user"`
	UserUID uint32       `json:"user_uid,omitempty"`
	Since   time.Time    `json:"since"`
	Scope   *scope       `json:"scope,omitempty"`
	Group   string       `json:"group,omitempty"`
	Rules   *ruled       `json:"rules,omitempty"` // since version 3
	To      *savedToward `json:"to,omitempty"`    // since version 8, as what follows
	// Marker says that others are under the node, for a part of the traffic.
	Marker bool `json:"marker,omitempty"`
}

func (n *node) saved() savedNode {
	s := savedNode{
		ID: n.id, Subject: n.res.Subject, Kind: n.res.Kind, Key: n.res.Key, StartNS: n.res.StartBoottimeNS,
		UID: n.res.UID, Name: n.res.Name, Dir: n.res.Dir,
		Admin: n.wishes[enforce.OwnerAdmin], User: n.wishes[enforce.OwnerUser], UserUID: n.userUID,
		Since: n.since, Scope: n.scope, Group: n.group,
	}
	if !n.ruled.empty() || n.ruled.Outer != 0 {
		s.Rules = &n.ruled
	}
	if n.to != nil {
		s.To = &savedToward{Names: n.to.names, Each: n.to.each}
		if n.to.scope != nil {
			s.To.Scope = n.to.scope.id
		}
	}
	s.Marker = n.holds > 0
	return s
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
		group:  s.Group,
		marker: s.Marker,
	}
	if s.To != nil {
		n.to, n.scopeID = &toward{names: s.To.Names, each: s.To.Each}, s.To.Scope
		n.to.selector, _, _ = destination.Parse(s.Subject.ID) // check has done so
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
	if !s.User.empty() || !n.ruled.Owners[enforce.OwnerUser].empty() {
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
	s, err := readState(data)
	if err != nil {
		return nil, stateError(path, err)
	}
	return s, nil
}

func readState(data []byte) (*state, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&head); err != nil {
		return nil, fmt.Errorf("read its version: %w", err)
	}
	var s state
	var err error
	switch {
	case head.Version > stateVersion:
		return nil, fmt.Errorf("it was written by a newer netnice (its version is %d, this one knows %d)", head.Version, stateVersion)
	case head.Version == 1:
		err = strictly(data, &s)
	default:
		err = s.read(data)
	}
	if err != nil {
		return nil, err
	}
	return &s, s.check()
}

// read reads a heading and records.
func (s *state) read(data []byte) error {
	first, rest, ended := bytes.Cut(data, []byte("\n"))
	if !ended {
		return errors.New("its first line does not end")
	}
	var h heading
	if err := strictly(first, &h); err != nil {
		return fmt.Errorf("line 1: %w", err)
	}
	s.Version, s.BootID, s.NextID = h.Version, h.BootID, h.NextID
	nodes := make(map[uint32]savedNode)
	for at := 2; ; at++ {
		var line []byte
		// What follows the last line's end was being written as the machine
		// stopped: that command had not returned.
		if line, rest, ended = bytes.Cut(rest, []byte("\n")); !ended {
			if at-2 < h.Nodes {
				return fmt.Errorf("it ends in line %d of at least %d", at, 1+h.Nodes)
			}
			break
		}
		var r record
		if err := strictly(line, &r); err != nil {
			return fmt.Errorf("line %d: %w", at, err)
		}
		if r.NextID != 0 {
			s.NextID = r.NextID
		}
		if r.Node != nil {
			nodes[r.Node.ID] = *r.Node
		} else {
			delete(nodes, r.Gone)
		}
	}
	s.Nodes = slices.SortedFunc(maps.Values(nodes), func(a, b savedNode) int { return int(a.ID) - int(b.ID) })
	return nil
}

// strictly decodes one value, which must be all that there is.
func strictly(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
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
	d.file = stateFile{}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	err := enc.Encode(heading{Version: stateVersion, BootID: d.boot, NextID: d.nextID, Nodes: len(d.nodes)})
	for _, n := range d.sorted() {
		saved := n.saved()
		err = errors.Join(err, enc.Encode(record{Node: &saved}))
	}
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	path := d.statePath()
	if err := renameio.WriteFile(path, text.Bytes(), 0o600, renameio.WithTempDir(d.opts.StateDir)); err != nil {
		d.dirty = true
		return writeError(path, err)
	}
	if err := syncFolder(d.opts.StateDir); err != nil {
		d.dirty = true
		return writeError(path, err)
	}
	d.dirty = false
	// Without knowing the file, the next change writes it whole again.
	if info, err := os.Lstat(path); err == nil {
		d.file = stateFile{info: info, size: info.Size(), records: len(d.nodes)}
	}
	return nil
}

// saveChange adds changes to the file, or writes it whole where that cannot be
// done or it has grown too long. The caller holds d.mu.
func (d *Daemon) saveChange(lasting bool, changes ...record) error {
	if len(changes) == 0 {
		return nil
	}
	if d.dirty || d.file.info == nil || d.file.records+len(changes) > 2*len(d.nodes)+spare {
		return d.save()
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	for _, r := range changes {
		r.NextID = d.nextID
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("write the state: %w", err)
		}
	}
	if err := d.file.add(d.statePath(), text.Bytes(), lasting); err != nil {
		return d.save() // says what is wrong, if anything is
	}
	d.file.records += len(changes)
	return nil
}

// add appends to the file at path if it is the one that was written last; a
// failure leaves it as it was. Lasting is what must survive a power cut.
func (s *stateFile) add(path string, text []byte, lasting bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, s.info) || info.Size() != s.size {
		return errors.New("somebody else changed it")
	}
	_, err = f.Write(text)
	if err == nil && lasting {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err != nil {
		return errors.Join(err, f.Truncate(s.size))
	}
	s.size += int64(len(text))
	return nil
}

// change is a node's record, as it is now.
func (n *node) change() record {
	saved := n.saved()
	return record{Node: &saved}
}

// lasting reports whether the wish outlives this boot: a process does not.
func (n *node) lasting() bool {
	if n.to != nil {
		return n.to.scope == nil || n.to.scope.lasting()
	}
	return n.res.Kind != enforce.KindTree && n.res.Kind != enforce.KindDestination
}

func (d *Daemon) statePath() string { return filepath.Join(d.opts.StateDir, stateName) }

// forget removes the file.
func (d *Daemon) forget() error {
	d.file = stateFile{}
	err := os.Remove(d.statePath())
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
