// Package rulefiles is the source of limits by files of rules. It watches the administrator's files and those in users'
// homes, learns of each program that begins, and compares processes with the rules that are active now (package rules).
// It says by an interface, Host, which limits the rules request for which process, for all processes that a rule
// matches, and for which part of the traffic. It sets no limit itself, and has a lock of its own.
package rulefiles

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// Host is the program that brings limits into force. The source calls it with its own lock held. These methods take the
// lock of the limits, so that one is taken inside the source's. The host must not call the source while it holds a lock
// that these methods take. A function that a method is given may run under the lock of the limits: it decides by what the
// source has in memory, and neither reads a file nor calls the host.
type Host interface {
	// Apply brings into force what rules request of a process. It returns the process's own node, or false if the
	// process has none then.
	Apply(Process) (node uint32, ok bool)
	// Review brings into force what rules no longer request, or request otherwise, of nodes that are not in looked: next
	// returns the present request of a node's rules, from the former one and the user of the node. Nodes of rules for a
	// part of the traffic are left out. They follow at the end of Review.
	Review(looked map[uint32]bool, next func(uid uint32, before desired.Rules) desired.Rules)
	// Learn takes over the rules that concern no single process, until the next Learn: those of the administrator for
	// rates that follow a path (nil until they were read), and all that are for a part of the traffic and active now.
	// The limits for a part of the traffic follow at the end of the next Review.
	Learn(now time.Time, administrators *rules.Set, all Destinations)
	// LimitCounts counts the limits in force by each rule, by the rule's key.
	LimitCounts() map[string]int
	// CountsAs returns the user whose quota a user id uses.
	CountsAs(uid uint32) uint32
	// Publish publishes an event to these users and root. The host may skip making the event if nobody listens.
	Publish(uids [2]uint32, event func() api.Event)
	// IsDown reports whether everything was lifted for good: then no rule is applied any more.
	IsDown() bool
}

// Execs is what the source needs from the kernel side; enforce.Kernel has it.
type Execs interface {
	FollowExecs(on bool) error
	Execs() <-chan enforce.Exec
	LostEvents() (uint64, error)
}

// Options are what a source needs.
type Options struct {
	Log      *slog.Logger
	Kernel   Execs
	Resolver *identity.Resolver
	Host     Host
	// Dir has the administrator's rules; "" = the source follows no rules. OnDemand says that the daemon was started on
	// demand: then the source follows none either.
	Dir      string
	OnDemand bool
	// Homes returns the home folders by user.
	Homes func() (map[uint32]string, error)
	// Hangup has a signal for each requested reading of the rules.
	Hangup <-chan os.Signal
	// Tick is the time between two beats of Keep.
	Tick time.Duration
	Now  func() time.Time

	atHome func(uid uint32) // for tests: a slow file system
}

// Source holds all rules.
type Source struct {
	opts  Options
	homes homeLooks // its lock is taken before mu

	mu     sync.Mutex // guards the fields below
	read   bool       // all rules were read at least once
	system ownerFiles
	users  map[uint32]*ownerFiles // users that have a file, or had one
	lost   uint64                 // lost events, as counted at the last look at all processes
	phase  string                 // names the rules that hold at this time of day
	failed string                 // logged already
	unseen map[uint32]bool        // users whose homes no look has come to yet
	// unapplied says that the processes could not be listed when the rules in force changed: the next look tries again.
	unapplied bool

	// containers says that a rule names the container of a process. It is read without the lock.
	containers atomic.Bool
}

// New returns a source that has read no rules.
func New(o Options) *Source {
	s := &Source{opts: o, users: make(map[uint32]*ownerFiles)}
	s.homes.hanging, s.homes.told = make(map[uint32]*homeLook), make(map[uint32]homeTold)
	return s
}

// Follows reports whether the source applies rules.
func (s *Source) Follows() bool { return s.opts.Dir != "" && !s.opts.OnDemand }

// HasRead reports whether all rules were read at least once.
func (s *Source) HasRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

// asking says whose files a request for a look covers. These files are read even if they may still be changing.
type asking struct {
	all bool
	uid *uint32 // one user; other users' files are not read while they are being written
	// told says that the kernel has told of a change: another look follows soon while a file is new.
	told bool
}

func (a asking) of(uid uint32) bool { return a.all || a.uid != nil && *a.uid == uid }

func (s *Source) complain(err error) {
	if text := err.Error(); text != s.failed {
		s.failed = text
		s.opts.Log.Warn("rules were not looked after", "err", err)
	}
}

// any reports whether there is any rule.
func (s *Source) any() bool {
	if s.system.set != nil && len(s.system.set.Rules()) > 0 {
		return true
	}
	for _, r := range s.users {
		if r.set != nil && len(r.set.Rules()) > 0 {
			return true
		}
	}
	return false
}

// namesContainers reports whether a rule names the container of a process.
func (s *Source) namesContainers() bool {
	if s.system.set != nil && s.system.set.NamesContainers() {
		return true
	}
	for _, r := range s.users {
		if r.set != nil && r.set.NamesContainers() {
			return true
		}
	}
	return false
}

// sets returns the rules for a user's processes by owner, nil where they are not known yet.
func (s *Source) sets(uid uint32) [enforce.Owners]*rules.Set {
	if r := s.users[uid]; r != nil {
		return [enforce.Owners]*rules.Set{s.system.set, r.set}
	}
	if !s.read || s.unseen[uid] {
		return [enforce.Owners]*rules.Set{s.system.set, nil}
	}
	return [enforce.Owners]*rules.Set{s.system.set, rules.Compile(nil)}
}

// phaseAt returns a text that names the rules that hold at this time.
func (s *Source) phaseAt(now time.Time) string {
	var b strings.Builder
	phase := func(of *ownerFiles) {
		if of.set != nil {
			fmt.Fprintln(&b, of.set.Phase(now))
		}
	}
	phase(&s.system)
	for _, uid := range slices.Sorted(maps.Keys(s.users)) {
		phase(s.users[uid])
	}
	return b.String()
}

// Open begins to watch the files. It does nothing if the source follows no rules. Keep ends the watch.
func (s *Source) Open() {
	if !s.Follows() {
		return
	}
	if err := s.homes.watch.open(); err != nil {
		s.opts.Log.Warn("each home is looked at for rules all the time", "err", err)
	}
}

// KeepExecs applies the rules at each exec, until ctx ends.
func (s *Source) KeepExecs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.opts.Kernel.Execs():
			s.executed(ctx, e)
		}
	}
}

// Keep follows the files and the time, until ctx ends.
func (s *Source) Keep(ctx context.Context, tick <-chan time.Time) {
	homes := &s.homes.watch
	defer homes.close()
	s.look(asking{all: true})
	for {
		var settled <-chan time.Time // nil = no file is being written
		switch {
		case s.isFileNew():
			settled = time.After(s.settlePause())
		case homes.waits():
			settled = time.After(touchedPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
			s.look(asking{})
		case <-homes.changed:
			s.look(asking{told: true})
		case <-settled:
			s.look(asking{told: true})
		case <-s.opts.Hangup:
			s.opts.Log.Info("a look at the rules was asked for by a signal")
			s.reread(nil)
			s.look(asking{all: true})
		}
	}
}

// mostSettlePause is how long a file has to stay as it is before it is read: its writer may not be done. That does not
// take longer than from one tick to the next.
const mostSettlePause = 50 * time.Millisecond

func (s *Source) settlePause() time.Duration { return min(mostSettlePause, s.opts.Tick) }

// settled returns the time for observation.settled of a look that begins.
func (s *Source) settled() time.Time { return time.Now().Add(-s.settlePause()) }

// isFileNew reports whether the last look found a file in another state than the look before it.
func (s *Source) isFileNew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.users {
		if r.isNew() {
			return true
		}
	}
	return s.system.isNew()
}

// isSystemNew is isFileNew for the administrator's files.
func (s *Source) isSystemNew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.system.isNew()
}

// reread makes the next look read the files although they seem unchanged; uid nil = all files.
func (s *Source) reread(uid *uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outdate := func(r *ownerFiles) { r.readStamp = outdatedStamp }
	if uid == nil {
		outdate(&s.system)
	}
	for id, r := range s.users {
		if uid == nil || *uid == id {
			outdate(r)
		}
	}
}

// look reads the changes in all files, or in those of the user who asks. A user's request is no look at the files of
// others, which need two looks with a pause between them. The administrator's rules are in force before any home is
// read.
func (s *Source) look(asked asking) {
	if asked.uid == nil {
		s.followFiles(func() (changed bool) { return s.readSystem(asked) })
	}
	if asked.told && s.isSystemNew() {
		return
	}
	s.homes.mu.Lock()
	defer s.homes.mu.Unlock()
	homes, err := s.lookAtHomes(asked)
	s.followFiles(func() (changed bool) {
		if err != nil {
			s.complain(err)
		}
		first := asked.uid == nil && !s.read
		s.read = s.read || first
		return s.readHomes(homes, asked) || first
	})
}

// followFiles reads files. It looks at all processes if the changes in the files, the time or a lost event require
// that. The function read runs under s.mu.
func (s *Source) followFiles(read func() (changed bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Host.IsDown() {
		return
	}
	now := s.opts.Now()
	changed := read() || s.unapplied
	if changed && s.any() {
		// FollowExecs comes before the look at running processes, so that no exec in between is missed.
		if err := s.opts.Kernel.FollowExecs(true); err != nil {
			s.complain(err)
		}
	}
	if s.any() {
		lost, err := s.opts.Kernel.LostEvents()
		if err != nil {
			s.complain(err)
		} else if lost != s.lost {
			changed, s.lost = true, lost
		}
	}
	if phase := s.phaseAt(now); phase != s.phase {
		changed, s.phase = true, phase
	}
	s.containers.Store(s.namesContainers())
	if !changed {
		return
	}
	s.unapplied = !s.applyToAll(now)
	if !s.any() {
		if err := s.opts.Kernel.FollowExecs(false); err != nil {
			s.complain(err)
		}
	}
}
