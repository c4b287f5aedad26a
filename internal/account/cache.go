package account

import (
	"context"
	"errors"
	"time"
)

const (
	// mostKept bounds the stored answers. The answer that was unused for the longest goes first.
	mostKept = 8192
)

// lane is a kind of question. A question waits behind its own kind alone, so that many questions of one kind do not
// delay another kind: any user who runs programs can choose which names are shown.
type lane int

const (
	awaited lane = iota // a caller waits for the answer
	listed              // a file of the administrator's has the name
	shown               // a number that is shown to a user
	lanes
)

// laneBounds returns the number of questions of each kind that may be open, and the number of processes that answer
// them.
func laneBounds() (questions, processes [lanes]int) {
	return [lanes]int{32, 16, 8}, [lanes]int{4, 4, 1}
}

// entry is the last answer to a question.
type entry struct {
	answer answer
	// until is the end of the answer's validity. An answer with an account is kept beyond, for callers that must not
	// wait.
	until time.Time
	// failed is the reason why there was no newer answer. A new attempt is made only after retry.
	failed error
	retry  time.Time
	used   time.Time
}

// found reports whether the answer has an account.
func (e *entry) found() bool { return !e.until.IsZero() && e.answer.err == nil }

// flightKey tells the same question in two lanes apart: a caller that waits does not wait with the other lane.
type flightKey struct {
	question
	lane lane
}

// flight is a question that is being asked.
type flight struct {
	done   chan struct{}
	answer answer // once it is done
}

// recall returns the stored answer to a question. found says that the account exists, also by an old answer. fresh says
// that no new look-up is needed now.
func (d *Directory) recall(q question) (a answer, found, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, now := d.kept[q], d.now()
	if e == nil {
		return answer{}, false, false
	}
	e.used = now
	switch {
	case now.Before(e.until):
		return e.answer, e.found(), true
	case now.Before(e.retry) && e.found():
		return e.answer, true, true
	case now.Before(e.retry):
		return answer{err: e.failed}, false, true
	}
	return e.answer, e.found(), false
}

// ask returns the answer to a question, and waits for it, for no longer than Limit.
func (d *Directory) ask(ctx context.Context, q question) (answer, error) {
	if !q.askable() {
		return answer{}, unknown(q)
	}
	if !mayAsk(ctx) {
		if a, found, _ := d.recall(q); found {
			return a, nil
		}
		return answer{}, unknown(q)
	}
	if a, ok := d.settled(q); ok {
		return a, a.err
	}
	f := d.begin(flightKey{q, awaited})
	if f == nil {
		return answer{}, errQueued
	}
	select {
	case <-f.done:
		return f.answer, f.answer.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// settled returns a valid answer, or the reason why there is none for now. An old answer does not count here, as the
// caller decides by it.
func (d *Directory) settled(q question) (answer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, now := d.kept[q], d.now()
	switch {
	case e == nil:
		return answer{}, false
	case now.Before(e.until):
		e.used = now
		return e.answer, true
	case now.Before(e.retry):
		return answer{err: e.failed}, true
	}
	return answer{}, false
}

// begin starts a question, once for all callers that wait; nil if too many are open.
func (d *Directory) begin(k flightKey) *flight {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flights[k]; f != nil {
		return f
	}
	if questions, _ := laneBounds(); d.flying[k.lane] >= questions[k.lane] {
		return nil
	}
	f := &flight{done: make(chan struct{})}
	d.flights[k] = f
	d.flying[k.lane]++
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), d.opts.Limit)
		defer cancel()
		f.answer = d.lookUp(ctx, k.question, d.slots[k.lane])
		d.keep(k, f.answer)
		close(f.done)
	}()
	return f
}

// keep stores an answer. An answer with a user is stored for both questions, by name and by number.
func (d *Directory) keep(k flightKey, a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.flights, k)
	d.flying[k.lane]--
	if errors.Is(a.err, errQueued) {
		return
	}
	q := k.question
	d.note(q, a)
	if q.database == passwd && a.err == nil {
		for _, same := range []question{{passwd, a.user.Name}, {passwd, decimal(a.user.UID)}} {
			if same != q && same.askable() {
				d.note(same, a)
			}
		}
	}
}

// note stores an answer to a question. The caller holds d.mu.
func (d *Directory) note(q question, a answer) {
	now := d.now()
	e := d.kept[q]
	if e == nil {
		if len(d.kept) >= mostKept {
			d.forgetOne()
		}
		e = &entry{}
		d.kept[q] = e
	}
	e.used = now
	switch {
	case a.err == nil:
		e.answer, e.until, e.failed, e.retry = a, now.Add(d.opts.Fresh), nil, time.Time{}
	case errors.Is(a.err, ErrUnknown):
		e.answer, e.until, e.failed, e.retry = a, now.Add(d.opts.FreshUnknown), nil, time.Time{}
	default:
		e.failed, e.retry = a.err, now.Add(d.opts.FreshUnknown)
	}
}

// forgetOne makes room. The caller holds d.mu.
func (d *Directory) forgetOne() {
	var oldest question
	var at time.Time
	for q, e := range d.kept {
		if at.IsZero() || e.used.Before(at) {
			oldest, at = q, e.used
		}
	}
	delete(d.kept, oldest)
}
