package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

// Acceptor is a unix socket that accepts connections, such as a *net.UnixListener.
type Acceptor interface {
	net.Listener
	AcceptUnix() (*net.UnixConn, error)
}

// Listener accepts connections of a unix socket and identifies the caller of each.
type Listener struct {
	Acceptor
	opts Options

	conns *connTable // of users

	mu      sync.Mutex
	refused int // number of connections that get a refusal at present
}

// Options configure a Listener; the zero value is valid.
type Options struct {
	// Group returns the administrators' group at each connection; nil, or an answer of nil: there is none.
	Group func() *uint32
	// CountsAs returns the user that a user id counts as; nil = each as itself.
	CountsAs func(uid uint32) uint32
}

// NewListener wraps l.
func NewListener(l Acceptor, opts Options) *Listener {
	if opts.Group == nil {
		opts.Group = func() *uint32 { return nil }
	}
	if opts.CountsAs == nil {
		opts.CountsAs = func(uid uint32) uint32 { return uid }
	}
	return &Listener{Acceptor: l, opts: opts, conns: newConnTable(MaxConnsPerUser, MaxConnsOfUsers)}
}

// Accept returns the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		actor, err := peer(c, l.opts.Group())
		if err != nil {
			c.Close() // no answer is possible
			continue
		}
		conn := &Conn{UnixConn: c, Actor: actor}
		if who := l.opts.CountsAs(actor.UID); who != 0 && !actor.Admin {
			entry, evicted := l.conns.add(who, c)
			if entry == nil {
				l.refuse(c)
				continue
			}
			if evicted != nil {
				evicted.conn.Close()
			}
			conn.entry = entry
		}
		return conn, nil
	}
}

// mostRefused bounds the connections that get a refusal at a time; further ones are closed at once. refusePatient is
// the time to wait for their request: an answer before the request would be lost.
const (
	mostRefused   = 32
	refusePatient = time.Second
)

// refuse answers any request on a connection that is one too many.
func (l *Listener) refuse(c *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == mostRefused {
		c.Close()
		return
	}
	l.refused++
	go func() {
		defer func() {
			c.Close()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.refused--
		}()
		_ = c.SetDeadline(time.Now().Add(refusePatient)) // otherwise the goroutine ends when the caller hangs up
		if _, err := c.Read(make([]byte, MaxHeader)); err == nil {
			_, _ = c.Write(tooMany()) // a caller that has gone misses nothing
		}
	}()
}

// tooMany returns the answer in the form of HTTP.
func tooMany() []byte {
	var refusal *api.Error
	errors.As(Busy(fmt.Sprintf("%d connections of yours to the daemon are open already, or your share of the %d of all users", MaxConnsPerUser, MaxConnsOfUsers)), &refusal)
	body, _ := json.Marshal(refusal) // texts alone always encode
	status := api.HTTPStatus(refusal.Code)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
}

// Conn is a connection with a known caller.
type Conn struct {
	*net.UnixConn
	Actor Actor
	entry *connEntry // nil: it is an administrator's, and counts for no user
}

// Read reads from the connection.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	if n > 0 {
		c.entry.arrived()
	}
	return n, err
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.entry.remove()
	return c.UnixConn.Close()
}

// peer asks the kernel for the credentials of the process that connected.
func peer(c *net.UnixConn, group *uint32) (Actor, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Actor{}, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	member := false
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if credErr == nil && group != nil {
			member = cred.Gid == *group || peerIsIn(fd, *group)
		}
	})
	if err := errors.Join(err, credErr); err != nil {
		return Actor{}, fmt.Errorf("peer credentials: %w", err)
	}
	return Actor{UID: cred.Uid, GID: cred.Gid, PID: int(cred.Pid), Admin: member}, nil
}

// peerIsIn looks for a group among the supplementary ones of the other end. Without an answer it returns false.
func peerIsIn(fd uintptr, group uint32) bool {
	const most = 1 << 16 // NGROUPS_MAX of the kernel
	for room := 64; room <= most; room *= 4 {
		list := make([]uint32, room)
		size := uint32(len(list) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch errno {
		case 0:
			return slices.Contains(list[:size/4], group)
		case unix.ERANGE:
			continue
		}
		return false
	}
	return false
}

type actorKey struct{}

// ConnContext is for http.Server.ConnContext: it puts the caller, and the connection, into the context of every request
// on it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if conn, ok := c.(*Conn); ok {
		return context.WithValue(WithActor(ctx, conn.Actor), connKey{}, conn)
	}
	return ctx
}

// WithActor returns a context that carries the caller.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// FromContext returns the caller; false if there is none, and then nothing is allowed.
func FromContext(ctx context.Context) (Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(Actor)
	return a, ok
}
