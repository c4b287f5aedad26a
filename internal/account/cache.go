package account

import (
	"context"
	"errors"
	"time"
)

const (
	// mostKept bounds the answers that are kept; the one that was used the longest time ago goes first.
	mostKept = 8192
)

// lane is a kind of question, which waits behind its own kind alone. So no number of them delays another kind: what is
// shown has names of whoever runs something, and that is everybody's to choose.
type lane int

const (
	awaited lane = iota // somebody waits for the answer
	listed              // a file of the administrator's has the name
	shown               // a number that is shown to somebody
	lanes
)

// laneBounds are how many questions of a kind are open at a time, and how many of these processes answer.
func laneBounds() (questions, processes [lanes]int) {
	return [lanes]int{32, 16, 8}, [lanes]int{4, 4, 1}
}

// entry is the last answer to a question.
type entry struct {
	answer answer
	// until is when it counts no longer. One that there is somebody is kept beyond, for callers that must not wait.
	until time.Time
	// failed is why there was no newer one, which is not tried again before retry.
	failed error
	retry  time.Time
	used   time.Time
}

// found reports whether the answer is that there is somebody.
func (e *entry) found() bool { return !e.until.IsZero() && e.answer.err == nil }

// flightKey tells the same question in two lanes apart: who waits does not wait with the other.
type flightKey struct {
	question
	lane lane
}

// flight is a question that is being asked.
type flight struct {
	done   chan struct{}
	answer answer // once it is done
}

// recall returns what is known of a question: found says that there is somebody, also by an old answer; fresh that
// nobody has to be asked now.
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

// settled returns an answer that counts, or why there is none for now. An old one does not count here: somebody
// decides by it.
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

// begin has a question asked, once for all who wait; nil if too many are.
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

// keep notes an answer; of a user it is one to both questions, by name and by number.
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

// note puts an answer under a question. The caller holds d.mu.
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
