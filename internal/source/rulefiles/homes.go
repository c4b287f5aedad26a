package rulefiles

import (
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/rules"
)

// A user's home may lie on a file system that does not answer, such as that of an unreachable server. Therefore the
// source reads homes without the lock on the rules, some at a time, and waits for none for long. A result that comes
// late counts at a later look.

const (
	// filePatience is the time that a look waits for one home.
	filePatience = 250 * time.Millisecond
	// homePause is how often the source looks at a home that it cannot watch, and watchedPause at one that it can: it is
	// told nothing of changes on another machine.
	homePause    = 10 * time.Second
	watchedPause = 15 * time.Second
	// touchedPause is the least time between two looks at a home because of changes there.
	touchedPause = 200 * time.Millisecond
	// homesAtOnce is the number of homes that are read at a time.
	homesAtOnce = 8
	// homesPatience is the time after which a look begins with no other home, unless a request covers all homes and
	// each answers.
	homesPatience = time.Second
	// mostHanging bounds the homes without an answer: a thread waits for each.
	mostHanging = 256
	// homeLinePause is the least time between two log lines about one home: it may be slow at every other look.
	homeLinePause = time.Minute
)

// homeLook is a look at the file of a user's own rules.
type homeLook struct {
	uid         uint32
	home        string
	known       *ownerFiles // a copy of the rules when the look began; nil: there were none
	late        bool        // the wait for it timed out
	observation             // without the stamp until the look is done

	done    chan struct{} // closed when the stamp and the fields below are set; nil: it has not begun
	watched bool          // a later change will be told
	isRead  bool
	list    []*rules.Rule
	err     error
}

// homeLooks holds the looks that homes have not answered. Its lock is held for a whole look at users' rules, and taken
// before that of Source.
type homeLooks struct {
	mu      sync.Mutex
	hanging map[uint32]*homeLook
	unseen  map[uint32]bool // homes that no look has come to yet; never changed in place
	listed  bool            // all homes were listed once
	told    map[uint32]homeTold
	full    bool // the log says that there are too many
	watch   homeWatch
	last    map[uint32]homeLast // the last looks that had a result
}

// homeLast is the time of the last look at a home, and whether it is watched since.
type homeLast struct {
	at      time.Time
	watched bool
}

// isDue reports whether a look covers a home though nobody asks for it. The argument r is what is known of the user's
// rules, or nil.
func (h *homeLooks) isDue(uid uint32, r *ownerFiles, now time.Time) bool {
	last, known := h.last[uid]
	pause := homePause
	if last.watched {
		pause = watchedPause
	}
	if h.watch.isTouched(uid) {
		pause = touchedPause
	}
	return h.watch.file == nil || !known || h.hanging[uid] != nil || r != nil && r.isOutdated(r.seenStamp, now) || now.Sub(last.at) >= pause
}

// homeTold is the last log line about a home, and its time.
type homeTold struct {
	hangs bool
	at    time.Time
}

// see looks at the file, and reads it if it has changed. The function before is a test's, or nil.
func (l *homeLook) see(watch *homeWatch, before func(uid uint32)) {
	defer close(l.done)
	if before != nil {
		before(l.uid)
	}
	l.watched = watch.add(l.uid, l.home) // before the look, so that it misses nothing
	l.stamp = rules.UserStamp(l.home)
	r := l.known
	if r == nil {
		if l.stamp == "" {
			return
		}
		r = &ownerFiles{uid: l.uid}
	}
	if r.reads(l.observation) {
		l.list, l.err = rules.LoadUser(l.home, l.uid)
		l.isRead = true
	}
}

func (l *homeLook) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// await waits for the look, but not for long.
func (l *homeLook) await() {
	timer := time.NewTimer(filePatience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		l.late = true
	}
}

// lookAtHomes returns the looks at users' own rules that have a result. The caller holds s.homes.mu, and no other lock.
func (s *Source) lookAtHomes(asked asking) (answered []*homeLook, err error) {
	looks, err := s.homesToSee(asked)
	if err != nil {
		return nil, err
	}
	h := &s.homes
	var begin []*homeLook
	for _, l := range looks {
		switch former := h.hanging[l.uid]; {
		case former == nil:
			begin = append(begin, l)
		case former.isDone():
			delete(h.hanging, l.uid)
			if former.home == l.home {
				answered = append(answered, former)
			}
		}
	}
	if asked.uid == nil { // users may have gone
		maps.DeleteFunc(h.hanging, func(_ uint32, l *homeLook) bool { return l.isDone() })
	}
	// The source itself makes the first look, and rules with destinations wait for it.
	answered = append(answered, s.seeHomes(begin, asked.all && h.listed)...)
	h.lookedAt(answered, s.opts.Now())
	if asked.uid == nil {
		h.noteUnseen(looks)
	}
	return answered, nil
}

// noteUnseen notes the homes in the list that no look has come to.
func (h *homeLooks) noteUnseen(all []*homeLook) {
	unseen := make(map[uint32]bool)
	for _, l := range all {
		if l.done == nil && (!h.listed || h.unseen[l.uid]) {
			unseen[l.uid] = true
		}
	}
	h.unseen, h.listed = unseen, true
}

// homesToSee lists the homes that a look covers.
func (s *Source) homesToSee(asked asking) (list []*homeLook, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	homes, err := s.opts.Homes()
	if err != nil {
		return nil, err
	}
	now, settled := s.opts.Now(), s.settled()
	for uid, home := range homes {
		if asked.uid != nil && !asked.of(uid) || !asked.of(uid) && !s.homes.isDue(uid, s.users[uid], now) {
			continue
		}
		l := &homeLook{uid: uid, home: home, observation: observation{asked: asked.of(uid), now: now, settled: settled}}
		if r := s.users[uid]; r != nil {
			known := *r
			l.known = &known
		}
		list = append(list, l)
	}
	return list, nil
}

// seeHomes looks at homes, and returns those that have answered; the others hang from now on. It looks at all of them
// if that was requested and none hangs.
func (s *Source) seeHomes(list []*homeLook, all bool) (answered []*homeLook) {
	h := &s.homes
	room := int64(mostHanging - len(h.hanging))
	if full := room <= 0; full != h.full {
		h.full = full
		if full {
			s.opts.Log.Warn("so many home folders do not answer that nobody's own rules are read until some do", "homes", len(h.hanging))
		}
	}
	if h.full {
		return nil
	}
	var next, late atomic.Int64
	until := time.Now().Add(homesPatience)
	var workers sync.WaitGroup
	for range min(homesAtOnce, len(list)) {
		workers.Go(func() {
			for all && late.Load() == 0 || late.Load() < room && time.Now().Before(until) {
				i := next.Add(1) - 1
				if i >= int64(len(list)) {
					return
				}
				l := list[i]
				l.done = make(chan struct{})
				h.watch.take(l.uid)
				go l.see(&h.watch, s.opts.atHome)
				if l.await(); l.late {
					late.Add(1)
				}
			}
		})
	}
	workers.Wait()
	for _, l := range list {
		if l.done == nil {
			continue // the next look begins with others
		}
		s.tellHanging(l)
		if l.isDone() {
			answered = append(answered, l)
		} else {
			h.hanging[l.uid] = l
		}
	}
	return answered
}

// tellHanging logs whether a home answers, if that differs from the last log line and that line is old enough.
func (s *Source) tellHanging(l *homeLook) {
	told, now := s.homes.told, s.opts.Now()
	last := told[l.uid]
	if now.Sub(last.at) < homeLinePause {
		return // a later look logs the state at that time
	}
	switch {
	case l.late && !last.hangs:
		told[l.uid] = homeTold{hangs: true, at: now}
		s.opts.Log.Warn("a home folder does not answer: its user's own rules are not read until it does, and those from before stay", "uid", l.uid, "home", l.home)
	case !l.late && last.hangs:
		told[l.uid] = homeTold{at: now}
		s.opts.Log.Info("a home folder answers again", "uid", l.uid, "home", l.home)
	case !l.late:
		delete(told, l.uid)
	}
}

// lookedAt notes the looks that have a result. The caller holds h.mu.
func (h *homeLooks) lookedAt(answered []*homeLook, now time.Time) {
	if h.last == nil {
		h.last = make(map[uint32]homeLast)
	}
	for _, l := range answered {
		h.last[l.uid] = homeLast{at: now, watched: l.watched}
	}
}

// readHomes stores the results of looks at users' own rules, and reports whether the rules in force have changed. The
// caller holds both locks.
func (s *Source) readHomes(answered []*homeLook, asked asking) (changed bool) {
	now := s.opts.Now()
	for _, l := range answered {
		r := s.users[l.uid]
		if r == nil {
			if l.stamp == "" {
				continue
			}
			r = &ownerFiles{uid: l.uid}
			s.users[l.uid] = r
		}
		at := l.observation
		at.asked, at.now = asked.of(l.uid), now
		if !l.isRead && r.reads(at) {
			r.readStamp = outdatedStamp // it was requested meanwhile
			continue
		}
		if s.renew(r, at, func() ([]*rules.Rule, error) { return l.list, l.err }) {
			changed = true
		}
	}
	if asked.uid == nil && !maps.Equal(s.unseen, s.homes.unseen) {
		s.unseen, changed = s.homes.unseen, true
	}
	for uid := range s.homes.hanging {
		if s.users[uid] == nil { // the user learns why no rules are known, and the former requests of these rules stay
			s.users[uid] = &ownerFiles{uid: uid}
		}
	}
	for uid, r := range s.users {
		r.hanging = ""
		if l := s.homes.hanging[uid]; l != nil {
			r.hanging = l.home
		}
	}
	return changed
}

// hangs returns the problem of a home that does not answer.
func hangs(home string) api.RuleProblem {
	return api.RuleProblem{
		File:    filepath.Join(home, rules.OfUser),
		Message: "the home folder does not answer: the file is read when it does, and rules from before stay in force",
		Remedy:  "ls -la " + home,
	}
}
