package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/rules"
)

// book is the rule set of one owner. While a file is wrong, the last correct rules stay in force.
type book struct {
	set      *rules.Set // nil: no rules were correct yet
	stamp    string     // stamp of the files when they were read
	seen     string     // stamp of the files at the last look
	problems []api.RuleProblem
	refused  string    // stamp of the files whose problems were published
	owner    uint32    // 0 = the administrator
	hanging  string    // the owner's home, while it does not answer
	missing  error     // why a user in these rules was not known when they were read
	lookUps  lookUps   // look-ups of these users
	again    time.Time // when to read the files again for that; zero = not
	debt     ruleDebt
}

// readAgain is a stamp that files never have.
const readAgain = "(again)"

// whose returns the name of the owner for events and the log.
func (b *book) whose() string {
	if b.owner == 0 {
		return api.OwnerAdmin
	}
	return fmt.Sprint("uid ", b.owner)
}

// isOutdated reports whether files with this stamp have changed since they were read, or are to be read again.
func (b *book) isOutdated(stamp string, now time.Time) bool {
	again := !b.again.IsZero() && !now.Before(b.again)
	return again || stamp != b.stamp || b.set == nil && len(b.problems) == 0
}

// reads reports whether a look at files with this stamp reads them. The program that writes a file may not be done.
// Therefore the stamp has to be the same as at the last look, unless a look was requested.
func (b *book) reads(stamp string, asked bool, now time.Time) bool {
	return b.isOutdated(stamp, now) && (asked || b.seen == stamp)
}

// audience returns the readers of events about these rules.
func (b *book) audience() observe.Audience { return observe.UsersOnly([2]uint32{b.owner}) }

// ruleBook holds all rules. Its lock is taken before Daemon.mu, and after that of homes.
type ruleBook struct {
	mu     sync.Mutex
	read   bool // all rules were read at least once
	system book
	users  map[uint32]*book // users that have a file, or had one
	lost   uint64           // lost events, as counted at the last look at all processes
	phase  string           // names the rules that hold at this time of day
	failed string           // logged already
	unseen map[uint32]bool  // users whose homes no look has come to yet
	homes  homeLooks

	// containers says that a rule names the container of a process. It is read without the lock.
	containers atomic.Bool
}

// followsRules reports whether this daemon applies rules.
func (d *Daemon) followsRules() bool { return d.opts.RulesDir != "" && !d.opts.OnDemand }

// problemsOf turns an error into the problems that the API shows.
func problemsOf(err error) []api.RuleProblem {
	var list rules.Problems
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &list):
		return []api.RuleProblem{{Message: err.Error()}}
	}
	out := make([]api.RuleProblem, len(list))
	for i, p := range list {
		out[i] = api.RuleProblem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message, Remedy: p.Remedy}
	}
	return out
}

// renew reads the files again if they have changed, and reports whether the rules in force have changed.
func (d *Daemon) renew(b *book, stamp string, asked bool, now time.Time, load func() ([]*rules.Rule, error)) bool {
	reads := b.reads(stamp, asked, now)
	if b.seen = stamp; !reads {
		return false
	}
	b.stamp, b.again = stamp, time.Time{}
	list, err := load()
	if errors.Is(b.missing, account.ErrPending) {
		b.stamp = readAgain // the next look has the answer
		return false
	}
	if b.missing != nil {
		b.again = now.Add(missingPause)
	}
	before, refused, whose := b.problems, b.refused, b.whose()
	if b.problems, b.refused = problemsOf(err), ""; err != nil {
		b.refused = stamp
		if !asked && stamp == refused && slices.Equal(before, b.problems) {
			return false // these problems were published already
		}
		what := "rules are not in force; those from before stay"
		if b.set == nil {
			what = "rules are not in force"
		}
		d.observe.Tell(b.audience(), api.Event{Type: api.EventRulesRefused, Owner: whose, Problems: b.problems})
		d.log.Warn(what, "of", whose, "err", err)
		return false
	}
	b.set = rules.Compile(list)
	d.observe.Tell(b.audience(), api.Event{Type: api.EventRulesRead, Owner: whose, Count: uint64(len(list))})
	d.log.Info("rules read", "of", whose, "rules", len(list))
	return true
}

// asking says whose files a request for a look covers. These files are read even if they may still be changing.
type asking struct {
	all bool
	uid *uint32 // one user; other users' files are not read while they are being written
	// told says that the kernel has told of a change: another look follows soon while a file is new.
	told bool
}

func (a asking) of(uid uint32) bool { return a.all || a.uid != nil && *a.uid == uid }

// missingPause is the interval at which rules with an unknown user are read again: a directory may come up later.
const missingPause = time.Minute

// loadSystem reads the administrator's rules. The caller holds d.rules.mu, so the call waits for no user look-up.
func (d *Daemon) loadSystem(b *book) ([]*rules.Rule, error) {
	b.missing = nil
	answered := 0
	list, err := rules.LoadSystem(d.opts.RulesDir, uint32(os.Geteuid()), func(name string) (uint32, error) {
		uid, err := d.resolver.Accounts().UIDSoon(name)
		if err != nil && !errors.Is(b.missing, account.ErrPending) {
			b.missing = err
		}
		if isAnswer(err) {
			answered++
			return uid, err
		}
		return 0, fmt.Errorf("%w: whether there is a user %q is not known", account.ErrUnanswered, name)
	})
	if !errors.Is(b.missing, account.ErrPending) {
		b.lookUps = lookUps{}
	} else if b.lookUps.areOver(d.now(), answered) {
		b.lookUps, b.missing = lookUps{}, account.ErrUnanswered // and tried again after a while
	}
	return list, err
}

// lookUpRuleUsers looks up the users in the administrator's rules, so that a requested look at the rules knows them
// all. It ignores errors in the files, which the requested look reports.
func (d *Daemon) lookUpRuleUsers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookUpPatience)
	defer cancel()
	_, _ = rules.LoadSystem(d.opts.RulesDir, uint32(os.Geteuid()), func(name string) (uint32, error) {
		return d.resolver.Accounts().UID(ctx, name)
	})
}

// readSystem reads the administrator's files if they have changed, and reports whether the rules in force have changed.
// The caller holds d.rules.mu.
func (d *Daemon) readSystem(asked asking) (changed bool) {
	b := &d.rules.system
	if watch := &d.rules.homes.watch; !d.rules.read || watch.take(administrators) || b.seen != b.stamp {
		watch.addSystem(d.opts.RulesDir) // its folders may be new
	}
	return d.renew(b, rules.SystemStamp(d.opts.RulesDir), asked.all, d.now(), func() ([]*rules.Rule, error) {
		return d.loadSystem(b)
	})
}

func (d *Daemon) complainOfRules(err error) {
	if text := err.Error(); text != d.rules.failed {
		d.rules.failed = text
		d.log.Warn("rules were not looked after", "err", err)
	}
}

// any reports whether there is any rule.
func (r *ruleBook) any() bool {
	if r.system.set != nil && len(r.system.set.Rules()) > 0 {
		return true
	}
	for _, b := range r.users {
		if b.set != nil && len(b.set.Rules()) > 0 {
			return true
		}
	}
	return false
}

// namesContainers reports whether a rule names the container of a process.
func (r *ruleBook) namesContainers() bool {
	if r.system.set != nil && r.system.set.NamesContainers() {
		return true
	}
	for _, b := range r.users {
		if b.set != nil && b.set.NamesContainers() {
			return true
		}
	}
	return false
}

// sets returns the rules for a user's processes by owner, nil where they are not known yet.
func (r *ruleBook) sets(uid uint32) [2]*rules.Set {
	if b := r.users[uid]; b != nil {
		return [2]*rules.Set{r.system.set, b.set}
	}
	if !r.read || r.unseen[uid] {
		return [2]*rules.Set{r.system.set, nil}
	}
	return [2]*rules.Set{r.system.set, rules.Compile(nil)}
}

// phaseAt returns a text that names the rules that hold at this time.
func (r *ruleBook) phaseAt(now time.Time) string {
	var b strings.Builder
	phase := func(of *book) {
		if of.set != nil {
			fmt.Fprintln(&b, of.set.Phase(now))
		}
	}
	phase(&r.system)
	for _, uid := range slices.Sorted(maps.Keys(r.users)) {
		phase(r.users[uid])
	}
	return b.String()
}

// keepExecs applies the rules at each exec, until ctx ends.
func (d *Daemon) keepExecs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.kernel.Execs():
			d.executed(ctx, e)
		}
	}
}

// keepRules follows the files and the time, until ctx ends.
func (d *Daemon) keepRules(ctx context.Context, tick <-chan time.Time) {
	homes := &d.rules.homes.watch
	defer homes.close()
	d.lookAtRules(asking{all: true})
	for {
		var settled <-chan time.Time // nil = no file is being written
		switch {
		case d.isRuleFileNew():
			settled = time.After(min(settlePause, d.opts.Tick))
		case homes.waits():
			settled = time.After(touchedPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
			d.lookAtRules(asking{})
		case <-homes.changed:
			d.lookAtRules(asking{told: true})
		case <-settled:
			d.lookAtRules(asking{told: true})
		case <-d.opts.Hangup:
			d.log.Info("a look at the rules was asked for by a signal")
			d.rereadRules(nil)
			d.lookAtRules(asking{all: true})
		}
	}
}

// settlePause is how long a file has to stay as it is before it is read: its writer may not be done.
const settlePause = 50 * time.Millisecond

// isRuleFileNew reports whether the last look found a file in another state than the look before it.
func (d *Daemon) isRuleFileNew() bool {
	r := &d.rules
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.users {
		if b.isNew() {
			return true
		}
	}
	return r.system.isNew()
}

// isSystemNew is isRuleFileNew for the administrator's files.
func (d *Daemon) isSystemNew() bool {
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	return d.rules.system.isNew()
}

// isNew reports whether the files are in another state than when they were read.
func (b *book) isNew() bool { return b.seen != b.stamp && b.stamp != readAgain }

// rereadRules makes the next look read the files although they seem unchanged; uid nil = all files.
func (d *Daemon) rereadRules(uid *uint32) {
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	again := func(b *book) { b.stamp = readAgain }
	if uid == nil {
		again(&d.rules.system)
	}
	for id, b := range d.rules.users {
		if uid == nil || *uid == id {
			again(b)
		}
	}
}

// lookAtRules reads the changes in all files, or in those of the user who asks. A user's request is no look at the
// files of others, which need two looks with a pause between them. The administrator's rules are in force before any
// home is read.
func (d *Daemon) lookAtRules(asked asking) {
	if asked.uid == nil {
		d.followFiles(func() (changed bool) { return d.readSystem(asked) })
	}
	if asked.told && d.isSystemNew() {
		return
	}
	r := &d.rules
	r.homes.mu.Lock()
	defer r.homes.mu.Unlock()
	homes, err := d.lookAtHomes(asked)
	d.followFiles(func() (changed bool) {
		if err != nil {
			d.complainOfRules(err)
		}
		first := asked.uid == nil && !r.read
		r.read = r.read || first
		return d.readHomes(homes, asked) || first
	})
}

// followFiles reads files. It looks at all processes if the changes in the files, the time or a lost event require
// that. The function read runs under d.rules.mu.
func (d *Daemon) followFiles(read func() (changed bool)) {
	r := &d.rules
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.down() {
		return
	}
	now := d.now()
	changed := read()
	if changed && r.any() {
		// FollowExecs comes before the look at running processes, so that no exec in between is missed.
		if err := d.kernel.FollowExecs(true); err != nil {
			d.complainOfRules(err)
		}
	}
	if r.any() {
		lost, err := d.kernel.LostEvents()
		if err != nil {
			d.complainOfRules(err)
		} else if lost != r.lost {
			changed, r.lost = true, lost
		}
	}
	if phase := r.phaseAt(now); phase != r.phase {
		changed, r.phase = true, phase
	}
	r.containers.Store(r.namesContainers())
	if !changed {
		return
	}
	d.applyToAll(now)
	if !r.any() {
		if err := d.kernel.FollowExecs(false); err != nil {
			d.complainOfRules(err)
		}
	}
}

func (d *Daemon) now() time.Time {
	if d.opts.now != nil {
		return d.opts.now()
	}
	return time.Now()
}
