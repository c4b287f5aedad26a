package auth

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// phase is the activity of a connection. Where one is closed for another user's, the lowest phase goes first.
type phase int

const (
	receiving phase = iota // a request has begun to arrive, and has not arrived whole
	waiting                // for a request
	answering              // a request
	streaming              // events, for as long as the other end reads
)

// connTable bounds the open connections of each user, and of all users together. When all of them are in use, a user
// with fewer connections than another gets one of the other's. Administrators' connections are not in the table: they
// have no bound.
type connTable struct {
	perUser, total int

	mu     sync.Mutex
	byUser map[uint32]map[*connEntry]struct{} // keyed by the user that they count for
	open   int
}

// connEntry is an open connection of a user's.
type connEntry struct {
	table *connTable
	user  uint32
	conn  io.Closer
	phase phase     // guarded by table.mu, as since
	since time.Time // start of the phase
}

func newConnTable(perUser, total int) *connTable {
	return &connTable{perUser: perUser, total: total, byUser: make(map[uint32]map[*connEntry]struct{})}
}

// add enters a connection. It returns nil if the user has as many as allowed, or if there is no room. The result
// evicted is another user's connection that gives way, and that the caller closes; nil: there was room.
func (t *connTable) add(user uint32, conn io.Closer) (entry, evicted *connEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := len(t.byUser[user])
	if own >= t.perUser {
		return nil, nil
	}
	if t.open >= t.total {
		if evicted = t.victim(own); evicted == nil {
			return nil, nil
		}
		t.drop(evicted)
	}
	if t.byUser[user] == nil {
		t.byUser[user] = make(map[*connEntry]struct{})
	}
	entry = &connEntry{table: t, user: user, conn: conn, phase: waiting, since: time.Now()}
	t.byUser[user][entry] = struct{}{}
	t.open++
	return entry, evicted
}

// victim returns the connection to close in favor of a user with own open connections. It considers the users with the
// most connections, and returns the one that is in the lowest phase for the longest. Its user keeps at least the number
// that the newcomer then has; otherwise the two could close each other's in turn. A newcomer without a connection gets
// one also where each user has only one, but none that answers a request. The caller holds t.mu.
func (t *connTable) victim(own int) (worst *connEntry) {
	most := 0
	for _, list := range t.byUser {
		most = max(most, len(list))
	}
	if own > 0 && most < own+2 {
		return nil
	}
	for _, list := range t.byUser {
		if len(list) < most {
			continue
		}
		for e := range list {
			if most == 1 && e.phase >= answering {
				continue
			}
			if worst == nil || e.phase < worst.phase || e.phase == worst.phase && e.since.Before(worst.since) {
				worst = e
			}
		}
	}
	return worst
}

// drop removes an entry, if it is still there. The caller holds t.mu.
func (t *connTable) drop(e *connEntry) {
	list := t.byUser[e.user]
	if _, ok := list[e]; !ok {
		return
	}
	t.open--
	if delete(list, e); len(list) == 0 {
		delete(t.byUser, e.user)
	}
}

// remove takes a closed connection out of the table. A nil entry is an administrator's, as in the methods that follow.
func (e *connEntry) remove() {
	if e == nil {
		return
	}
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	e.table.drop(e)
}

// enter notes the phase that the connection is in from now on.
func (e *connEntry) enter(next phase) {
	if e == nil {
		return
	}
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if e.phase != next {
		e.phase, e.since = next, time.Now()
	}
}

// arrived notes that bytes arrived: where no request is under way they begin one.
func (e *connEntry) arrived() {
	if e == nil {
		return
	}
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if e.phase == waiting {
		e.phase, e.since = receiving, time.Now()
	}
}

type connKey struct{}

// entryOf returns the entry of the connection of a request, nil if it has none.
func entryOf(ctx context.Context) *connEntry {
	if c, ok := ctx.Value(connKey{}).(*Conn); ok {
		return c.entry
	}
	return nil
}

// Tracked notes for each connection whether its request has arrived whole, and is answered. It is the outermost
// handler: a request that waits outside of it counts as one that has not arrived.
func Tracked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := entryOf(r.Context())
		if r.Body == nil || r.Body == http.NoBody {
			e.enter(answering)
		} else {
			r.Body = trackedBody{r.Body, e}
		}
		defer e.enter(waiting)
		next.ServeHTTP(w, r)
	})
}

// trackedBody is the body of a request. The request has arrived whole when its body is read to the end.
type trackedBody struct {
	io.ReadCloser
	entry *connEntry
}

func (b trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.entry.enter(answering)
	}
	return n, err
}

// Streams notes that the answer to a request goes on for as long as the other end reads it. Of a user's connections
// such a one is the last to be closed for another user's.
func Streams(ctx context.Context) { entryOf(ctx).enter(streaming) }
