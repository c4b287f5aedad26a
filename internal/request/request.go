// Package request owns the one way of every request that sets or lifts limits: the order of its steps, the undo of its
// changes, and what is checked or said of a request by itself. It knows no node, and resolves no subject.
package request

import (
	"context"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// Steps are those of a request for one kind of subject, in the order in which Carry calls them. T is the host's
// transaction.
type Steps[T Undoable] interface {
	Common() *Exchange
	// Check refuses settings that no subject of the kind can have. It reads nothing but the request.
	Check() error
	// Resolve finds out all that takes long: names, D-Bus, /proc, files. It takes the host's lock for moments only.
	Resolve(ctx context.Context) error

	// The host's lock is held from here on. Find finds the nodes that the request is about.
	Find() error
	// Authorise refuses callers who may not do that.
	Authorise() error
	// Plan computes what the nodes become, and the warnings. It changes no node. If nothing is to be done, it completes
	// the answer.
	Plan(tx T) error
	// Admit refuses a plan beyond a quota, or beyond what a limit around has to give.
	Admit() error
	// Apply brings the plan into force. A dry run leaves it out.
	Apply(tx T) error
	// Finish completes the answer.
	Finish()
}

// Undoable is a transaction as Carry knows it.
type Undoable interface {
	Commit()
	// RollBack undoes all changes so far. It returns the cause, nil after a dry run, with what could not be undone.
	RollBack(cause error) error
}

// Host has the nodes, with the lock on them.
type Host[T Undoable] interface {
	Lock()
	Unlock()
	// Begin begins a transaction, or refuses all requests. The caller holds the lock.
	Begin() (T, error)
	// Drain waits, without the lock, until the kernel side has released what was lifted.
	Drain()
}

// Exchange is what requests of all kinds have in common: the caller, and the answer so far.
type Exchange struct {
	By         auth.Actor
	DryRun     bool
	Answer     api.SetResponse
	IsAnswered bool     // nothing is to be done
	IsMoved    bool     // Apply has something to do although the limit stays the same
	HasLifted  bool     // the kernel side has something to release
	AtEnd      []func() // called without the lock, the last first
}

// Common implements Steps.
func (e *Exchange) Common() *Exchange { return e }

// Check and Admit implement Steps for kinds that have nothing to refuse.
func (e *Exchange) Check() error { return nil }

// Admit implements Steps.
func (e *Exchange) Admit() error { return nil }

// Warn adds warnings to the answer.
func (e *Exchange) Warn(texts ...string) { e.Answer.Warnings = append(e.Answer.Warnings, texts...) }

// Carry carries out a request, or none of it. A dry run is the same without Apply.
func Carry[T Undoable](ctx context.Context, h Host[T], r Steps[T]) (api.SetResponse, error) {
	none, e := api.SetResponse{}, r.Common()
	defer func() {
		for _, end := range slices.Backward(e.AtEnd) {
			end()
		}
		if e.HasLifted {
			h.Drain()
		}
	}()
	if err := r.Check(); err != nil {
		return none, err
	}
	if err := r.Resolve(ctx); err != nil {
		return none, err
	}
	h.Lock()
	defer h.Unlock()
	tx, err := h.Begin()
	if err != nil {
		return none, err
	}
	if err := prepare(r, tx); err != nil {
		return none, tx.RollBack(err)
	}
	if e.IsAnswered {
		return e.Answer, tx.RollBack(nil)
	}
	if e.DryRun || !e.Answer.Changed && !e.IsMoved {
		r.Finish()
		return e.Answer, tx.RollBack(nil)
	}
	if err := r.Apply(tx); err != nil {
		return none, tx.RollBack(err)
	}
	tx.Commit()
	r.Finish()
	return e.Answer, nil
}

// Rehearse runs the steps up to the point at which nothing refuses a request any more, for a Resolve whose slow part is a
// change by itself. Carry runs them again.
func Rehearse[T Undoable](h Host[T], r Steps[T]) error {
	h.Lock()
	defer h.Unlock()
	tx, err := h.Begin()
	if err != nil {
		return err
	}
	return tx.RollBack(prepare(r, tx))
}

func prepare[T Undoable](r Steps[T], tx T) error {
	e := r.Common()
	e.Answer, e.IsAnswered = api.SetResponse{Version: api.Version}, false
	for _, step := range []func() error{r.Find, r.Authorise, func() error { return r.Plan(tx) }} {
		if err := step(); err != nil {
			return err
		}
	}
	if e.IsAnswered {
		return nil
	}
	return r.Admit()
}
