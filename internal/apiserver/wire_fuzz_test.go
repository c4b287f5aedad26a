package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/auth"
)

// wireSeeds returns data as it may arrive on connections: well-formed requests, several at once, halves, and data that
// is not a request.
func wireSeeds() []string {
	put := func(path, body string) string {
		return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: netnice\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s", path, len(body), body)
	}
	limit := put("/v1/limits", `{"subject":{"kind":"pid","id":"4711"},"wish":{"up_bytes_per_sec":1000000}}`)
	const status = "GET /v1/status HTTP/1.1\r\nHost: netnice\r\n\r\n"
	return []string{
		status, limit, status + limit + status,
		limit[:len(limit)-9], limit[:40], "GET /v1/st",
		put("/v1/power", `{"pid":4711,"power":30}`), put("/v1/adapt", `{"host":"192.0.2.7"}`),
		"GET /v1/why?pid=4711&over=250ms HTTP/1.1\r\nHost: netnice\r\nConnection: close\r\n\r\n",
		"GET /v1/events HTTP/1.1\r\nHost: netnice\r\n\r\n",
		"GET /v1/events HTTP/1.1\r\nHost: netnice\r\nContent-Length: 100\r\n\r\n{",
		"GET /v1/events HTTP/1.1\r\nHost: netnice\r\nTransfer-Encoding: chunked\r\n\r\n",
		"DELETE /v1/limits?subject=cgroup:%2Fa%2Fb&dry_run=1 HTTP/1.0\r\n\r\n",
		"POST /v1/rules/reload HTTP/1.1\r\nHost: netnice\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"PUT /v1/limits HTTP/1.1\r\nHost: netnice\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nffffffffffffffff\r\n",
		"PUT /v1/limits HTTP/1.1\r\nHost: netnice\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
		"PUT /v1/limits HTTP/1.1\r\nHost: netnice\r\nContent-Length: 99999999\r\n\r\n{",
		"GET /v1/status HTTP/1.1\r\nHost: netnice\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: netnice\r\n\r\n", "CONNECT netnice:80 HTTP/1.1\r\n\r\n",
		"GET http://else:1/v1/../v1/status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /v1/status\r\n\r\n", "\r\n\r\n\r\n",
		"GET /" + strings.Repeat("x", 20000) + " HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 4000) + "\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "\x00", "",
	}
}

// serves runs a server, which is the daemon's but for its backend, and counts its connections.
func serves(l net.Listener, open *atomic.Int64, asked func(auth.Actor)) *http.Server {
	s := NewServer(&backend{}, slog.New(slog.DiscardHandler))
	api := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, _ := auth.FromContext(r.Context())
		asked(by)
		api.ServeHTTP(w, r)
	})
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	go func() { _ = s.Serve(l) }() // its end is Close's
	return s
}

// answers reads the answers to the requests in asked, until the connection ends.
func answers(t *testing.T, asked []byte, from io.Reader) {
	in := bufio.NewReader(from)
	if bytes.Contains(asked, []byte("HEAD")) { // answers to it have no bodies
		_, _ = io.Copy(io.Discard, in)
		return
	}
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		r, err := http.ReadResponse(in, nil)
		if err == nil {
			require.True(t, r.StatusCode >= 100 && r.StatusCode < 600 && r.StatusCode != http.StatusInternalServerError, r.Status)
			_, err = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close() // the body has been read
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return // a caller that hangs up may miss the end of events
		}
		require.NoError(t, err)
	}
}

// Any data on a connection, in whatever pieces, is answered or refused. The connection ends when no more data arrives.
// No goroutine and no connection is left, and the server identifies every caller correctly.
func FuzzWire(f *testing.F) {
	for i, seed := range wireSeeds() {
		// The server waits half a second after an answer to a request that is too large. In the bubble of
		// FuzzHalfRequests that takes no time.
		if len(seed) < 10_000 && !strings.Contains(seed, "99999999") {
			f.Add([]byte(seed), uint16(7*i))
		}
	}
	const bound = 10 * time.Second
	dir, err := os.MkdirTemp("", "nn") // short: it holds a socket
	require.NoError(f, err)
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", at)
	require.NoError(f, err)
	var open atomic.Int64
	var others atomic.Int64
	s := serves(auth.NewListener(l, auth.Options{}), &open, func(by auth.Actor) {
		if int(by.UID) != os.Getuid() || by.PID != os.Getpid() {
			others.Add(1)
		}
	})
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		before := runtime.NumGoroutine()
		c, err := net.DialUnix("unix", nil, at)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(bound)))
		wrote := make(chan struct{})
		go func() { // the server need not read all of it
			defer close(wrote)
			first := min(int(cut), len(data))
			for _, piece := range [][]byte{data[:first], data[first:]} {
				if _, err := c.Write(piece); err != nil {
					return
				}
				runtime.Gosched()
			}
			_ = c.CloseWrite()
		}()
		all, err := io.ReadAll(c)
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the connection stays")
		if err == nil {
			answers(t, data, bytes.NewReader(all))
		}
		<-wrote
		for until := time.Now().Add(bound); open.Load() > 0 || runtime.NumGoroutine() > before; time.Sleep(50 * time.Microsecond) {
			require.True(t, time.Now().Before(until), "%d connections are open, and %d goroutines run, of %d before", open.Load(), runtime.NumGoroutine(), before)
		}
		require.Zero(t, others.Load())
	})
}

// pipes are connections without a kernel, so that their time can be a bubble's.
type pipes struct {
	next   chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// The server closes the connection of a caller that sends a part of a request, and then neither sends more nor hangs
// up. No part keeps a connection for longer than the server's times together.
func FuzzHalfRequests(f *testing.F) {
	for _, seed := range wireSeeds() {
		f.Add([]byte(seed))
		f.Add([]byte(seed[:len(seed)/2]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			const bound = readTimeout + writeTimeout + idleTimeout + time.Second
			l := &pipes{next: make(chan net.Conn), closed: make(chan struct{})}
			var open atomic.Int64
			s := serves(l, &open, func(auth.Actor) {})
			s.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return auth.WithActor(ctx, bob) }
			here, there := net.Pipe()
			l.next <- there
			began := time.Now()
			go func() { _, _ = here.Write(data) }() // ends with the connection
			answers(t, data, here)
			require.LessOrEqual(t, time.Since(began), bound)
			_ = here.Close()
			_ = s.Close()
			synctest.Wait()
			require.Zero(t, open.Load())
		})
	})
}
