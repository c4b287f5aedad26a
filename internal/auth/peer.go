package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxConnsPerUser bounds the connections that one uid may hold open at a time;
// one more is closed at once. Root has no bound.
const MaxConnsPerUser = 64

// Listener accepts connections of a unix socket and learns who is calling.
type Listener struct {
	*net.UnixListener

	mu    sync.Mutex
	conns map[uint32]int
}

// NewListener wraps l.
func NewListener(l *net.UnixListener) *Listener {
	return &Listener{UnixListener: l, conns: make(map[uint32]int)}
}

// Accept returns the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		actor, err := peer(c)
		if err != nil || !l.enter(actor.UID) {
			c.Close() // nobody to answer to, or one too many of theirs
			continue
		}
		return &Conn{UnixConn: c, Actor: actor, leave: sync.OnceFunc(func() { l.leave(actor.UID) })}, nil
	}
}

func (l *Listener) enter(uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid != 0 && l.conns[uid] >= MaxConnsPerUser {
		return false
	}
	l.conns[uid]++
	return true
}

func (l *Listener) leave(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[uid]--; l.conns[uid] == 0 {
		delete(l.conns, uid)
	}
}

// Conn is a connection whose other end is known.
type Conn struct {
	*net.UnixConn
	Actor Actor
	leave func()
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.leave()
	return c.UnixConn.Close()
}

// peer asks the kernel who connected.
func peer(c *net.UnixConn) (Actor, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Actor{}, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return Actor{}, fmt.Errorf("peer credentials: %w", err)
	}
	return Actor{UID: cred.Uid, GID: cred.Gid, PID: int(cred.Pid)}, nil
}

type actorKey struct{}

// ConnContext is for http.Server.ConnContext: it puts the caller into the
// context of every request on the connection.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if conn, ok := c.(*Conn); ok {
		return WithActor(ctx, conn.Actor)
	}
	return ctx
}

// WithActor returns a context that carries the caller.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// FromContext returns the caller; false if there is none, and then nothing is
// allowed.
func FromContext(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}
