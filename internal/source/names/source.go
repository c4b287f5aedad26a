// Package names is the source of the addresses that limits on destinations by host name hold for. It asks the resolver
// again and again, remembers the last answer for each name, and says by an interface, Host, when an answer has changed.
// It sets no limit itself.
//
// The answers have no lock of their own. Which addresses a limit holds for is a part of what a request changes, and what a
// refused request has added must not be seen before it is taken back. So the lock of the limits guards them.
package names

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
)

// DefaultEvery is the interval between two lookups of a host name. No connection waits for a lookup.
const DefaultEvery = time.Minute

// Answer holds the addresses of a name. It is never changed in place.
type Answer struct {
	Addresses []netip.Addr // ascending
	Problem   string       // why the addresses are those of an earlier lookup, "" if they are current
}

// String describes the addresses in words for people.
func (a Answer) String() string {
	out := strings.Join(a.texts(), ", ")
	switch {
	case a.Problem != "" && out == "":
		return "no address known: " + a.Problem
	case a.Problem != "":
		return out + ", as before: " + a.Problem
	}
	return out
}

func (a Answer) texts() []string {
	texts := make([]string, len(a.Addresses))
	for i, address := range a.Addresses {
		texts[i] = address.String()
	}
	return texts
}

// Host is the program that has the limits.
type Host interface {
	// Read calls a function under the lock of the limits. Like that of Update, it does not call back.
	Read(read func())
	// Update calls a function under the lock of the limits, with the names that limits are for. It brings into force
	// what the function returns. The function only compares answers in memory.
	Update(change func(wanted map[string]bool) Change)
}

// Change says what has changed. The zero value is no change.
type Change struct {
	HasForgotten bool   // the source has forgotten names that no limit is for
	Name         string // the name that has another answer, "" = none
	Answer       Answer
	HasMoved     bool // the answer has other addresses, and not only another problem
}

// Options are what a source needs.
type Options struct {
	Log  *slog.Logger
	Host Host
	// LookUp finds the addresses of a host name.
	LookUp func(ctx context.Context, name string) ([]netip.Addr, error)
	// Every is the time between two lookups of a name.
	Every time.Duration
}

// Source has the answers.
type Source struct {
	opts    Options
	answers map[string]Answer // by the name; the lock of the limits guards them
}

// New returns a source that knows no name.
func New(o Options) *Source { return &Source{opts: o, answers: make(map[string]Answer)} }

// AskMachine asks the machine's resolver for IPv4 and IPv6 addresses.
func AskMachine(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// Keep looks all names up again at each interval, until ctx ends.
func (s *Source) Keep(ctx context.Context) {
	tick := time.NewTicker(s.opts.Every)
	defer tick.Stop()
	for {
		s.lookAgain(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookAgain looks up all names that limits are for. A name that is not found keeps its last addresses.
func (s *Source) lookAgain(ctx context.Context) {
	var names []string
	s.opts.Host.Update(func(wanted map[string]bool) Change {
		names = slices.Collect(maps.Keys(wanted))
		return Change{HasForgotten: s.forget(wanted)}
	})
	for _, name := range names {
		addresses, err := s.lookUp(ctx, name)
		if ctx.Err() != nil {
			return
		}
		var c Change
		s.opts.Host.Update(func(wanted map[string]bool) Change {
			if wanted[name] {
				c = s.answered(name, addresses, err)
			}
			return c
		})
		if c.Name != "" {
			s.opts.Log.Info("a name was looked up", "name", name, "addresses", len(c.Answer.Addresses), "problem", c.Answer.Problem)
		}
	}
}

// forget forgets the names that no limit is for, and reports whether there were any.
func (s *Source) forget(wanted map[string]bool) bool {
	before := len(s.answers)
	maps.DeleteFunc(s.answers, func(name string, _ Answer) bool { return !wanted[name] })
	return len(s.answers) < before
}

// answered remembers the answer for a name, and says what is new in it.
func (s *Source) answered(name string, addresses []netip.Addr, err error) Change {
	was, isKnown := s.answers[name]
	is := Answer{Addresses: addresses}
	if err != nil {
		is = Answer{Addresses: was.Addresses, Problem: err.Error()}
	}
	hasMoved := !slices.Equal(is.Addresses, was.Addresses)
	if isKnown && !hasMoved && (is.Problem == "") == (was.Problem == "") {
		return Change{}
	}
	s.answers[name] = is
	return Change{Name: name, Answer: is, HasMoved: hasMoved}
}

// Learn remembers the answers for names that a new limit needs. The caller holds the lock of the limits, also when it
// calls undo.
func (s *Source) Learn(answers map[string]Answer) (undo func()) {
	before := maps.Clone(s.answers)
	maps.Copy(s.answers, answers)
	return func() { s.answers = before }
}

// Adopt remembers the addresses of names that an earlier daemon has found. The caller holds the lock of the limits.
func (s *Source) Adopt(names map[string][]netip.Addr) {
	for name, addresses := range names {
		s.answers[name] = Answer{Addresses: addresses}
	}
}

// Addresses returns the addresses of names. The caller holds the lock of the limits.
func (s *Source) Addresses(names []string) map[string][]netip.Addr {
	list := make(map[string][]netip.Addr, len(names))
	for _, name := range names {
		list[name] = s.answers[name].Addresses
	}
	return list
}

// Resolved returns a copy of a selector that also has the addresses of its names. The caller holds the lock of the limits.
func (s *Source) Resolved(of destination.Selector) destination.Selector {
	if len(of.Names) == 0 {
		return of
	}
	of.Prefixes = slices.Clone(of.Prefixes)
	for _, name := range of.Names {
		for _, a := range s.answers[name].Addresses {
			of.Prefixes = append(of.Prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return of
}

// Shown returns all answers for clients, by the name. The caller holds the lock of the limits.
func (s *Source) Shown() map[string]api.NameAddresses {
	list := make(map[string]api.NameAddresses, len(s.answers))
	for name, a := range s.answers {
		list[name] = api.NameAddresses{Name: name, Problem: a.Problem, Addresses: a.texts()}
	}
	return list
}
