package auth

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// wire is a connection that only counts how often it was closed.
type wire struct{ closed int }

func (w *wire) Close() error {
	w.closed++
	return nil
}

// crowd opens connections of users in a table. It closes the connections that are evicted for them, as a Listener does.
type crowd struct {
	*connTable
	t *testing.T
}

func newCrowd(t *testing.T, perUser, total int) crowd {
	return crowd{newConnTable(perUser, total), t}
}

// opens opens one more connection; nil: it is refused.
func (c crowd) opens(user uint32) *connEntry {
	c.t.Helper()
	e, evicted := c.add(user, &wire{})
	if evicted != nil {
		require.NotNil(c.t, e, "nobody is evicted for nothing")
		require.NotEqual(c.t, user, evicted.user)
		require.NoError(c.t, evicted.conn.Close())
		evicted.remove() // the server does so when it reads the end
	}
	require.LessOrEqual(c.t, c.open, c.total)
	return e
}

// all opens as many connections as allowed.
func (c crowd) all(user uint32) (n int) {
	c.t.Helper()
	for c.opens(user) != nil {
		n++
	}
	return n
}

func (c crowd) has(user uint32) int { return len(c.byUser[user]) }

func isClosed(e *connEntry) bool { return e.conn.(*wire).closed > 0 }

func TestOneUserKeepsNobodyOut(t *testing.T) {
	c := newCrowd(t, MaxConnsPerUser, MaxConnsOfUsers)
	require.Equal(t, MaxConnsPerUser, c.all(1000))
	second := c.opens(1001)
	require.NotNil(t, second)
	require.Equal(t, MaxConnsPerUser, c.has(1000), "there is room for both")
	second.remove()
	second.remove()
	require.Equal(t, MaxConnsPerUser, c.open, "a connection leaves once")
	for e := range c.byUser[1000] {
		e.remove()
		break
	}
	require.NotNil(t, c.opens(1000))
}

// Users who together hold all connections give some to a user with fewer, until all have the same number.
func TestColludingUsersKeepNobodyOut(t *testing.T) {
	c := newCrowd(t, MaxConnsPerUser, MaxConnsOfUsers)
	for user := range uint32(64) {
		require.NotZero(t, c.all(1000+user))
	}
	const share = MaxConnsOfUsers / 64
	require.Equal(t, MaxConnsOfUsers, c.open)
	for user := range uint32(64) {
		require.InDelta(t, share, c.has(1000+user), 1)
	}
	require.GreaterOrEqual(t, c.all(2000), share-2, "the 65th has a share as the others")
	require.InDelta(t, share, c.has(2000), 2)
	require.Nil(t, c.opens(1000), "who has been evicted takes nothing back from who has as many")
	require.Equal(t, MaxConnsOfUsers, c.open)
}

// Where each user has one connection, a newcomer gets one that serves no request.
func TestNewcomerAmongUsersWithOneEach(t *testing.T) {
	c := newCrowd(t, 4, 3)
	reader, idle, asks := c.opens(1000), c.opens(1001), c.opens(1002)
	reader.enter(streaming)
	asks.enter(answering)
	require.NotNil(t, c.opens(1003))
	require.True(t, isClosed(idle))
	for e := range c.byUser[1003] {
		e.enter(answering)
	}
	require.Nil(t, c.opens(1001))
	require.False(t, isClosed(reader) || isClosed(asks))
}

// The user with the most connections loses the one in the lowest phase, and in that phase the oldest.
func TestSlowConnectionsAreClosedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 6, 7)
		stream := c.opens(1001) // another user's, and the oldest
		stream.enter(streaming)
		var hog []*connEntry
		for _, p := range []phase{streaming, answering, waiting, waiting, receiving, receiving} {
			time.Sleep(time.Second)
			e := c.opens(1000)
			if p == receiving {
				e.arrived()
			} else {
				e.enter(p)
			}
			hog = append(hog, e)
		}
		time.Sleep(time.Second)
		hog[4].arrived() // a byte more of the same request makes it no younger
		for i, first := range []int{4, 5, 2} {
			e := c.opens(2000)
			require.NotNil(t, e)
			require.True(t, isClosed(hog[first]), "eviction %d", i)
			e.enter(answering)
		}
		require.Nil(t, c.opens(2000), "now both have as many")
		require.NotNil(t, c.opens(2001))
		require.True(t, isClosed(hog[3]), "a user with less is not asked to give")
		for _, e := range []*connEntry{stream, hog[0], hog[1]} {
			require.False(t, isClosed(e))
		}
	})
}

// server answers on a socket as the daemon does. The test sets the user that the next connection counts for.
type server struct {
	t     *testing.T
	l     *Listener
	path  string
	as    atomic.Uint32
	goOn  chan struct{} // lets a handler go on
	ended chan struct{}
}

func newServer(t *testing.T, perUser, total int) *server {
	t.Helper()
	s := &server{t: t, path: filepath.Join(t.TempDir(), "s"), goOn: make(chan struct{}), ended: make(chan struct{})}
	raw, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	require.NoError(t, err)
	s.l = NewListener(raw, Options{CountsAs: func(uint32) uint32 { return s.as.Load() }})
	s.l.conns.perUser, s.l.conns.total = perUser, total
	mux := http.NewServeMux()
	mux.HandleFunc("/read", func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		select {
		case <-s.goOn:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		Streams(r.Context())
		_, _ = io.WriteString(w, "hello\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	h := &http.Server{Handler: Tracked(mux), ConnContext: ConnContext, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.ended)
		_ = h.Serve(s.l)
	}()
	t.Cleanup(func() {
		_ = h.Close()
		<-s.ended
	})
	return s
}

// dial connects as a user, and waits until the connection is in the table; root's (0) never is.
func (s *server) dial(user uint32) net.Conn {
	s.t.Helper()
	before := s.phases(user)
	s.as.Store(user)
	c, err := net.Dial("unix", s.path)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	if user != 0 {
		s.eventually(func() bool { return len(s.phases(user)) == len(before)+1 })
	}
	return c
}

// phases lists the phase of each of a user's connections.
func (s *server) phases(user uint32) (list []phase) {
	s.l.conns.mu.Lock()
	defer s.l.conns.mu.Unlock()
	for e := range s.l.conns.byUser[user] {
		list = append(list, e.phase)
	}
	return list
}

func (s *server) eventually(is func() bool) {
	s.t.Helper()
	require.Eventually(s.t, is, 5*time.Second, time.Millisecond)
}

// comesTo waits until a user's only connection is in a phase.
func (s *server) comesTo(user uint32, p phase) {
	s.t.Helper()
	s.eventually(func() bool { list := s.phases(user); return len(list) == 1 && list[0] == p })
}

func (s *server) send(c net.Conn, text string) {
	s.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(s.t, err)
}

// isCut reports whether the other end has closed a connection, before it answered.
func isCut(t *testing.T, c net.Conn) bool {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// A request counts as slow from its first byte on until its last, header and body alike.
func TestPhasesOfAConnection(t *testing.T) {
	s := newServer(t, 4, 4)
	c := s.dial(1000)
	answers := bufio.NewReader(c)
	answered := func() {
		t.Helper()
		s.goOn <- struct{}{}
		got, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		require.Equal(t, http.StatusOK, got.StatusCode)
		s.comesTo(1000, waiting)
	}
	s.comesTo(1000, waiting)
	s.send(c, "G")
	s.comesTo(1000, receiving)
	s.send(c, "ET /read HTTP/1.1\r\nHost: n\r\n\r\n")
	s.comesTo(1000, answering)
	answered()
	s.send(c, "PUT /read HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\n\r\nab")
	s.comesTo(1000, receiving)
	s.send(c, "cde")
	s.comesTo(1000, answering)
	answered()
	s.send(c, "GET /stream HTTP/1.1\r\nHost: n\r\n\r\n")
	s.comesTo(1000, streaming)
	require.NoError(t, c.Close())
	s.eventually(func() bool { return len(s.phases(1000)) == 0 })
}

// A user whose requests never end holds all connections that one user may have. Other users' streams go on, and neither
// a third user nor root is kept out.
func TestHogAndStream(t *testing.T) {
	s := newServer(t, 4, 5)
	stream := s.dial(1001)
	s.send(stream, "GET /stream HTTP/1.1\r\nHost: n\r\n\r\n")
	s.comesTo(1001, streaming)
	idle := s.dial(1000)
	var half []net.Conn
	for range 3 {
		c := s.dial(1000)
		s.send(c, "GET /read HTTP/1.1\r\n")
		half = append(half, c)
		count := len(half)
		s.eventually(func() bool {
			n := 0
			for _, p := range s.phases(1000) {
				if p == receiving {
					n++
				}
			}
			return n == count
		})
	}
	third := s.dial(1002)
	require.True(t, isCut(t, half[0]), "the slow one that has been so for the longest")
	require.Len(t, s.phases(1000), 3)
	s.send(third, "GET /read HTTP/1.1\r\nHost: n\r\n\r\n")
	s.comesTo(1002, answering)
	s.dial(1002)
	require.True(t, isCut(t, half[1]))

	boss := s.dial(0)
	s.send(boss, "GET /read HTTP/1.1\r\nHost: n\r\n\r\n")
	for range 2 { // the third user's, and root's
		s.goOn <- struct{}{}
	}
	for _, c := range []net.Conn{third, boss} {
		got, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		defer got.Body.Close()
		require.Equal(t, http.StatusOK, got.StatusCode)
	}
	require.Len(t, s.phases(1000), 2)
	s.comesTo(1001, streaming)
	s.send(idle, "GET /read HTTP/1.1\r\nHost: n\r\n\r\n")
	s.goOn <- struct{}{}
	got, err := http.ReadResponse(bufio.NewReader(idle), nil)
	require.NoError(t, err)
	defer got.Body.Close()
	require.Equal(t, http.StatusOK, got.StatusCode)
}
