package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

const (
	// eventsKept is how many events wait for a slow reader. The reader learns the number of further ones.
	eventsKept = 256
	// lastWords is how long a reader may take for the last events when the daemon leaves.
	lastWords = 500 * time.Millisecond
)

// hub distributes events to listeners. Most of the time there is no listener, and then no event is made.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	ended     bool
	leaving   error // the answer to new listeners after the end
}

// listener is one reader's stream.
type listener struct {
	by    auth.Actor
	queue []api.Event
	wake  chan struct{}
	over  bool
	cut   func() // ends a send that takes too long
}

// heard reports whether there is a listener: without one, no event needs to be made.
func (h *hub) heard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) > 0
}

// tell gives an event to the listeners in its audience.
func (h *hub) tell(to Audience, e api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) == 0 {
		return
	}
	e.Version, e.Time = api.Version, time.Now()
	for l := range h.listeners {
		if to.has(l.by) {
			l.put(e)
		}
	}
}

// put keeps an event until it is read, or counts it if too many wait.
func (l *listener) put(e api.Event) {
	last := len(l.queue) - 1
	switch {
	case len(l.queue) < eventsKept:
		l.queue = append(l.queue, e)
	case l.queue[last].Type == api.EventMissed:
		l.queue[last].Count++
		return
	default:
		l.queue = append(l.queue, api.Event{Version: api.Version, Type: api.EventMissed, Time: e.Time, Count: 1})
	}
	l.signal()
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// listen opens a stream.
func (h *hub) listen(by auth.Actor, cut func(), first api.Event) (*listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, h.leaving
	}
	own := 0
	for l := range h.listeners {
		if l.by.UID == by.UID {
			own++
		}
	}
	if !by.Root() && own >= auth.MaxStreamsPerUser {
		return nil, &api.Error{
			Code: api.CodeConflict, Message: fmt.Sprintf("you listen to events already, %d times; there may be no more", own),
			Hint: "end one of your netnice monitor first",
		}
	}
	l := &listener{by: by, cut: cut, wake: make(chan struct{}, 1)}
	first.Version, first.Time = api.Version, time.Now()
	l.put(first)
	if h.listeners == nil {
		h.listeners = make(map[*listener]struct{})
	}
	h.listeners[l] = struct{}{}
	return l, nil
}

// take returns the waiting events, and whether there may be more later.
func (h *hub) take(l *listener) ([]api.Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := l.queue
	l.queue = nil
	return list, !l.over
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
}

// end ends all streams after their waiting events. Until begin is called, no new stream opens.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for l := range h.listeners {
		l.over = true
		l.signal()
		time.AfterFunc(lastWords, l.cut)
	}
}

func (h *hub) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = false
}

// Heard reports whether anybody reads events. Without a reader, no event needs to be made.
func (o *Observer) Heard() bool { return o.events.heard() }

// Tell gives an event to the readers in an audience. It does not wait for them.
func (o *Observer) Tell(to Audience, e api.Event) { o.events.tell(to, e) }

// BeginEvents lets callers read events, EndEvents ends all readers after the events that wait for them.
func (o *Observer) BeginEvents() { o.events.begin() }

// EndEvents ends all streams of events.
func (o *Observer) EndEvents() { o.events.end() }

// Events calls send with the events that a caller may see, until send fails or ctx ends. The event hello is the first.
// With cut it ends a send that takes too long.
func (o *Observer) Events(ctx context.Context, by auth.Actor, cut func(), hello api.Event, send func([]api.Event) error) error {
	l, err := o.events.listen(by, cut, hello)
	if err != nil {
		return err
	}
	defer o.events.leave(l)
	o.noticeFirst()
	for {
		list, more := o.events.take(l)
		if len(list) > 0 {
			if err := send(list); err != nil {
				return err
			}
			continue
		}
		if !more {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
	}
}
