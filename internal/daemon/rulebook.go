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
	"github.com/netnice/netnice/internal/rules"
)

// book is the rules of one owner. With a file that is wrong the last that were right
// stay in force.
type book struct {
	set      *rules.Set // nil: none were right yet
	stamp    string     // of the files, as they were read
	seen     string     // of the files, at the last look
	problems []api.RuleProblem
	refused  string    // stamp of the files of which the problems were told
	owner    uint32    // 0 = the administrator's
	hanging  string    // the owner's home, while it does not answer
	missing  error     // why a user of these rules was not known when they were read
	lookUps  lookUps   // of these users
	again    time.Time // when they are read again for that; zero = not
	debt     ruleDebt
}

// readAgain is a stamp that files never have.
const readAgain = "(again)"

// whose is the owner as events and the log name them.
func (b *book) whose() string {
	if b.owner == 0 {
		return "admin"
	}
	return fmt.Sprint("uid ", b.owner)
}

// isOutdated reports whether files with this stamp have changed since they were read, or are to be read again.
func (b *book) isOutdated(stamp string, now time.Time) bool {
	again := !b.again.IsZero() && !now.Before(b.again)
	return again || stamp != b.stamp || b.set == nil && len(b.problems) == 0
}

// reads reports whether a look at files with this stamp reads them. Whoever writes a file may not be done: unless a
// look was asked for, it has to be as it was at the last one.
func (b *book) reads(stamp string, asked bool, now time.Time) bool {
	return b.isOutdated(stamp, now) && (asked || b.seen == stamp)
}

// audience is whom it concerns what becomes of the rules.
func (b *book) audience() audience { return audience{uids: [2]uint32{b.owner}} }

// ruleBook is all rules. Its lock is taken before Daemon.mu, and after that of homes.
type ruleBook struct {
	mu     sync.Mutex
	read   bool // all were, at least once
	system book
	users  map[uint32]*book // that have a file, or had one
	lost   uint64           // events, at the last look at all processes
	phase  string           // names the rules that hold at this time of day
	failed string           // logged already
	unseen map[uint32]bool  // users whose homes no look has come to yet
	homes  homeLooks

	// containers says that a rule asks for the container that a process is in; it is read without the lock.
	containers atomic.Bool
}

// followsRules reports whether this daemon applies rules.
func (d *Daemon) followsRules() bool { return d.opts.RulesDir != "" && !d.opts.OnDemand }

// problemsOf makes of an error what the API shows.
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

// renew reads the files again if they have changed, and reports whether the rules in
// force have.
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
			return false // as was told already
		}
		what := "rules are not in force; those from before stay"
		if b.set == nil {
			what = "rules are not in force"
		}
		d.events.tell(b.audience(), api.Event{Type: api.EventRulesRefused, Owner: whose, Problems: b.problems})
		d.log.Warn(what, "of", whose, "err", err)
		return false
	}
	b.set = rules.Compile(list)
	d.events.tell(b.audience(), api.Event{Type: api.EventRulesRead, Owner: whose, Count: uint64(len(list))})
	d.log.Info("rules read", "of", whose, "rules", len(list))
	return true
}

// asking says for whose files a look was asked for, which then are read as they are.
type asking struct {
	all bool
	uid *uint32 // one user: nobody else's file is read while it is being written
}

func (a asking) of(uid uint32) bool { return a.all || a.uid != nil && *a.uid == uid }

// missingPause is how often rules are read again of which a user is not known: a directory may come up later.
const missingPause = time.Minute

// loadSystem reads the administrator's rules. The caller holds d.rules.mu, so no user is waited for.
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

// lookUpRuleUsers looks the users up that the administrator's rules name, so that a look at the rules that was asked
// for has them all. What is wrong with the files that look says.
func (d *Daemon) lookUpRuleUsers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookUpPatience)
	defer cancel()
	_, _ = rules.LoadSystem(d.opts.RulesDir, uint32(os.Geteuid()), func(name string) (uint32, error) {
		return d.resolver.Accounts().UID(ctx, name)
	})
}

// readSystem reads the administrator's files if they have changed, and reports whether the rules in force have. The
// caller holds d.rules.mu.
func (d *Daemon) readSystem(asked asking) (changed bool) {
	b := &d.rules.system
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

// any reports whether there is a rule at all.
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

// namesContainers reports whether a rule asks for the container that a process is in.
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

// sets are the rules that are for a user's processes, nil where none are known, by
// owner.
func (r *ruleBook) sets(uid uint32) [2]*rules.Set {
	if b := r.users[uid]; b != nil {
		return [2]*rules.Set{r.system.set, b.set}
	}
	if !r.read || r.unseen[uid] {
		return [2]*rules.Set{r.system.set, nil}
	}
	return [2]*rules.Set{r.system.set, rules.Compile(nil)}
}

// phaseAt tells which rules hold by the time.
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

// keepExecs applies the rules to what is executed, until ctx ends.
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
func (d *Daemon) keepRules(ctx context.Context) {
	tick := time.NewTicker(d.opts.Tick)
	defer tick.Stop()
	d.lookAtRules(asking{all: true})
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.lookAtRules(asking{})
		case <-d.opts.Hangup:
			d.log.Info("a look at the rules was asked for by a signal")
			d.rereadRules(nil)
			d.lookAtRules(asking{all: true})
		}
	}
}

// rereadRules has the files be read although they seem to be as they were; uid nil =
// all.
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

// lookAtRules reads what has changed of all files, or of those of the user who asks: their asking is no look at
// others', of which it takes two, a while apart. The administrator's rules are in force before any home is looked at.
func (d *Daemon) lookAtRules(asked asking) {
	if asked.uid == nil {
		d.followFiles(func() (changed bool) { return d.readSystem(asked) })
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

// followFiles reads files, and looks at all processes if what has changed of them, the time or a lost event asks for
// it. The function read runs under d.rules.mu.
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
		// Before the look at what runs: what is executed meanwhile is told.
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
