package rulefiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/rules"
)

// ownerFiles has the rules of one owner, and what is known of the owner's files. While a file is wrong, the last correct
// rules stay in force.
type ownerFiles struct {
	set          *rules.Set // nil: no rules were correct yet
	readStamp    string     // stamp of the files when they were read
	seenStamp    string     // stamp of the files at the last look
	seenSince    time.Time  // when a look first saw that stamp
	problems     []api.RuleProblem
	refusedStamp string          // stamp of the files whose problems were published
	uid          uint32          // 0 = the administrator
	hanging      string          // the owner's home, while it does not answer
	missing      error           // why a user in these rules was not known when they were read
	lookUps      account.LookUps // look-ups of these users
	retryAt      time.Time       // when to read the files again for that; zero = not
	debt         ruleDebt
}

// outdatedStamp is a stamp that files never have: the next look reads them.
const outdatedStamp = "(outdated)"

// whose returns the name of the owner for events and the log.
func (r *ownerFiles) whose() string {
	if r.uid == 0 {
		return api.OwnerAdmin
	}
	return fmt.Sprint("uid ", r.uid)
}

// isOutdated reports whether files with this stamp have changed since they were read, or are to be read again.
func (r *ownerFiles) isOutdated(stamp string, now time.Time) bool {
	retries := !r.retryAt.IsZero() && !now.Before(r.retryAt)
	return retries || stamp != r.readStamp || r.set == nil && len(r.problems) == 0
}

// observation is what a look sees of an owner's files.
type observation struct {
	stamp   string
	asked   bool      // the look was requested
	now     time.Time // by the clock of the rules
	settled time.Time // files that an earlier look saw as they are, by this time of the machine's clock, are complete
}

// reads reports whether a look reads the files. The program that writes a file may not be done. Therefore an earlier
// look must have seen the same stamp, and long enough ago, unless a look was requested.
func (r *ownerFiles) reads(at observation) bool {
	return r.isOutdated(at.stamp, at.now) && (at.asked || r.seenStamp == at.stamp && !r.seenSince.After(at.settled))
}

// isNew reports whether the files are in another state than when they were read.
func (r *ownerFiles) isNew() bool { return r.seenStamp != r.readStamp && r.readStamp != outdatedStamp }

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

// publish publishes an event about the owner's rules.
func (s *Source) publish(of *ownerFiles, e api.Event) {
	e.Owner = of.whose()
	s.opts.Host.Publish([2]uint32{of.uid}, func() api.Event { return e })
}

// renew reads the files again if they have changed, and reports whether the rules in force have changed.
func (s *Source) renew(r *ownerFiles, at observation, load func() ([]*rules.Rule, error)) bool {
	reads := r.reads(at)
	if r.seenStamp != at.stamp {
		r.seenStamp, r.seenSince = at.stamp, time.Now()
	}
	if !reads {
		return false
	}
	r.readStamp, r.retryAt = at.stamp, time.Time{}
	list, err := load()
	if errors.Is(r.missing, account.ErrPending) {
		r.readStamp = outdatedStamp // the next look has the answer
		return false
	}
	if r.missing != nil {
		r.retryAt = at.now.Add(account.MissingPause)
	}
	before, published := r.problems, r.refusedStamp
	if r.problems, r.refusedStamp = problemsOf(err), ""; err != nil {
		r.refusedStamp = at.stamp
		if !at.asked && at.stamp == published && slices.Equal(before, r.problems) {
			return false // these problems were published already
		}
		what := "rules are not in force; those from before stay"
		if r.set == nil {
			what = "rules are not in force"
		}
		s.publish(r, api.Event{Type: api.EventRulesRefused, Problems: r.problems})
		s.opts.Log.Warn(what, "of", r.whose(), "err", err)
		return false
	}
	r.set = rules.Compile(list)
	s.publish(r, api.Event{Type: api.EventRulesRead, Count: uint64(len(list))})
	s.opts.Log.Info("rules read", "of", r.whose(), "rules", len(list))
	return true
}

// loadSystem reads the administrator's rules. The caller holds s.mu, so the call waits for no user look-up.
func (s *Source) loadSystem(r *ownerFiles) ([]*rules.Rule, error) {
	r.missing = nil
	answered := 0
	list, err := rules.LoadSystem(s.opts.Dir, uint32(os.Geteuid()), func(name string) (uint32, error) {
		uid, err := s.opts.Resolver.Accounts().UIDSoon(name)
		if err != nil && !errors.Is(r.missing, account.ErrPending) {
			r.missing = err
		}
		if account.IsAnswer(err) {
			answered++
			return uid, err
		}
		return 0, fmt.Errorf("%w: whether there is a user %q is not known", account.ErrUnanswered, name)
	})
	if !errors.Is(r.missing, account.ErrPending) {
		r.lookUps = account.LookUps{}
	} else if r.lookUps.AreOver(s.opts.Now(), answered) {
		r.lookUps, r.missing = account.LookUps{}, account.ErrUnanswered // and tried again after a while
	}
	return list, err
}

// lookUpUsers looks up the users in the administrator's rules, so that a requested look at the rules knows them all. It
// ignores errors in the files, which the requested look reports.
func (s *Source) lookUpUsers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, account.LookUpPatience)
	defer cancel()
	_, _ = rules.LoadSystem(s.opts.Dir, uint32(os.Geteuid()), func(name string) (uint32, error) {
		return s.opts.Resolver.Accounts().UID(ctx, name)
	})
}

// readSystem reads the administrator's files if they have changed, and reports whether the rules in force have changed.
// The caller holds s.mu.
func (s *Source) readSystem(asked asking) (changed bool) {
	r := &s.system
	if watch := &s.homes.watch; !s.read || watch.take(administrators) || r.seenStamp != r.readStamp {
		watch.addSystem(s.opts.Dir) // its folders may be new
	}
	at := observation{asked: asked.all, now: s.opts.Now(), settled: s.settled()}
	at.stamp = rules.SystemStamp(s.opts.Dir)
	return s.renew(r, at, func() ([]*rules.Rule, error) { return s.loadSystem(r) })
}
