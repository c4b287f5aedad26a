package inetd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// NotStarted is the exit code of a Session whose program could not be run.
const NotStarted = 125

// Server serves services until its context ends. The programs that it has started continue then.
type Server struct {
	Log *slog.Logger
	// Session returns the program of a session. The program is not started, and has no standard files.
	Session func(Service) *exec.Cmd
	// Most bounds the sessions at a time; 0 = any number. Further sessions wait.
	Most int
	// Inherited returns a socket that listens already, by the network and the address of a Service; nil = there is none.
	Inherited func(network, address string) *os.File

	mu       sync.Mutex
	serving  map[string]*post
	sessions int
	room     *sync.Cond
}

// post is a service that is listened to.
type post struct {
	service Service
	end     context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	children int
	minute   time.Time
	inMinute int
	refused  bool // a refusal was logged in this minute
	clients  clients
}

// Serve serves these services instead of the former ones. The error names the services for which no socket can listen;
// the server serves the others. Services that stay keep their sockets.
func (s *Server) Serve(ctx context.Context, services []Service) error {
	s.mu.Lock()
	if s.room == nil {
		s.room, s.serving = sync.NewCond(&s.mu), map[string]*post{}
	}
	wanted := map[string]Service{}
	for _, service := range services {
		wanted[service.key()] = service
	}
	var gone []*post
	for key, p := range s.serving {
		if now, stays := wanted[key]; stays && now.Wait == p.service.Wait && (now.Server == Internal) == (p.service.Server == Internal) {
			p.mu.Lock()
			p.service = now
			p.mu.Unlock()
			delete(wanted, key)
			continue
		}
		delete(s.serving, key)
		gone = append(gone, p)
	}
	s.mu.Unlock()
	for _, p := range gone {
		p.end()
		<-p.done // its port is free
	}
	var errs []error
	for key, service := range wanted {
		p, err := s.open(ctx, service)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: serve %s: %w", service.Line, service.Name, err))
			continue
		}
		s.mu.Lock()
		s.serving[key] = p
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Close ends all services.
func (s *Server) Close() error { return s.Serve(context.Background(), nil) }

// open listens for a service, and serves it in the background.
func (s *Server) open(ctx context.Context, service Service) (*post, error) {
	ctx, end := context.WithCancel(ctx)
	p := &post{service: service, end: end, done: make(chan struct{})}
	var serve func()
	if service.Datagrams() {
		conn, err := s.packets(ctx, service)
		if err != nil {
			end()
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		serve = func() { defer conn.Close(); s.datagrams(ctx, p, conn) }
	} else {
		l, err := s.listen(ctx, service)
		if err != nil {
			end()
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
		serve = func() { defer l.Close(); s.streams(ctx, p, l) }
	}
	go func() {
		defer close(p.done)
		serve()
	}()
	return p, nil
}

func (s *Server) listen(ctx context.Context, service Service) (*net.TCPListener, error) {
	var l net.Listener
	var err error
	if f := s.inherited(service); f != nil {
		defer f.Close()
		l, err = net.FileListener(f)
	} else {
		l, err = new(net.ListenConfig).Listen(ctx, service.Network, service.Address)
	}
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func (s *Server) packets(ctx context.Context, service Service) (*net.UDPConn, error) {
	var c net.PacketConn
	var err error
	if f := s.inherited(service); f != nil {
		defer f.Close()
		c, err = net.FilePacketConn(f)
	} else {
		c, err = new(net.ListenConfig).ListenPacket(ctx, service.Network, service.Address)
	}
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func (s *Server) inherited(service Service) *os.File {
	if s.Inherited == nil {
		return nil
	}
	return s.Inherited(service.Network, service.Address)
}

func (p *post) now() Service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.service
}

// streams accepts connections, or hands the listening socket on.
func (s *Server) streams(ctx context.Context, p *post, l *net.TCPListener) {
	// A service that waits for a connection holds no session yet.
	for comes(ctx, l) && s.enter(ctx, p) {
		if p.now().Wait {
			s.hand(ctx, p, l)
			continue
		}
		_ = l.SetDeadline(time.Now().Add(time.Second)) // the connection may have gone meanwhile
		conn, err := l.AcceptTCP()
		service := p.now()
		if err != nil {
			s.leave(p)
			if ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				s.Log.Warn("a connection was not accepted", "service", service.Name, "err", err)
				s.pause(ctx)
			}
			continue
		}
		client := clientOf(conn.RemoteAddr())
		if !p.may(time.Now()) || !p.mayClient(client, time.Now()) {
			s.refuse(p, conn.RemoteAddr())
			s.leave(p)
			_ = conn.Close() // the client sees the end of its connection and no message
			continue
		}
		leave := func() {
			p.clientLeaves(client)
			s.leave(p)
		}
		if service.Server == Internal {
			go func() {
				defer leave()
				converse(service.Args[0], conn)
			}()
			continue
		}
		f, err := conn.File() // a blocking socket, as programs expect it
		_ = conn.Close()
		if err == nil {
			_, err = s.start(service, f, leave)
		}
		if err != nil {
			s.Log.Error("a session was not started", "service", service.Name, "err", err)
			leave()
		}
	}
}

// datagrams answers the datagrams of a built-in service, or hands the socket on.
func (s *Server) datagrams(ctx context.Context, p *post, conn *net.UDPConn) {
	buf := make([]byte, 65536)
	for line := 0; ctx.Err() == nil; line++ {
		service := p.now()
		if service.Server != Internal {
			if !comes(ctx, conn) || !s.enter(ctx, p) {
				return
			}
			s.hand(ctx, p, conn)
			continue
		}
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			if ctx.Err() == nil {
				s.pause(ctx)
			}
			continue
		}
		if out := answer(service.Args[0], buf[:n], from, line); out != nil {
			_, _ = conn.WriteTo(out, from) // an answer may be lost, as any datagram may
		}
	}
}

// shared is a socket that the server hands to a program.
type shared interface {
	File() (*os.File, error)
}

// hand starts a program with a socket that has a connection or a datagram to read. It waits until the program has
// ended; with nowait, which datagrams may have, only until the program has read the datagram. If the server lacks file
// descriptors it pauses, and the service goes on.
func (s *Server) hand(ctx context.Context, p *post, socket shared) {
	f, err := socket.File()
	if err != nil {
		s.Log.Error("a socket cannot be handed on", "service", p.now().Name, "err", err)
		s.leave(p)
		s.pause(ctx)
		return
	}
	defer f.Close()
	if !readable(f) { // another process has read it
		s.leave(p)
		return
	}
	service := p.now()
	if !p.may(time.Now()) {
		s.refuse(p, nil)
		s.leave(p)
		s.pause(ctx)
		return
	}
	given, err := socket.File()
	var ended <-chan struct{}
	if err == nil {
		ended, err = s.start(service, given, func() { s.leave(p) })
	}
	if err != nil {
		s.Log.Error("a session was not started", "service", service.Name, "err", err)
		s.leave(p)
		s.pause(ctx)
		return
	}
	for {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			return // the program keeps the socket
		case <-time.After(10 * time.Millisecond):
			if !service.Wait && !readable(f) {
				return
			}
		}
	}
}

func readable(f *os.File) bool { return polled(f.Fd(), 0) }

func polled(fd uintptr, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(within.Milliseconds()))
	return err == nil && n > 0
}

// comes waits until a socket has a connection or a datagram, and reads nothing. It returns false if ctx has ended or
// the socket is closed.
func comes(ctx context.Context, socket syscall.Conn) bool {
	raw, err := socket.SyscallConn()
	for ready := false; err == nil && ctx.Err() == nil; {
		err = raw.Control(func(fd uintptr) { ready = polled(fd, 100*time.Millisecond) })
		if ready {
			return true
		}
	}
	return false
}

// start runs a session with a file as its standard input, output and error. When the session ends, start calls leave
// and closes the channel.
func (s *Server) start(service Service, f *os.File, leave func()) (<-chan struct{}, error) {
	defer f.Close()
	cmd := s.Session(service)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = f, f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.Log.Debug("session", "service", service.Name, "pid", cmd.Process.Pid)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		level := slog.LevelDebug
		if cmd.ProcessState.ExitCode() == NotStarted {
			level = slog.LevelWarn
		}
		s.Log.Log(context.Background(), level, "session has ended", "service", service.Name, "pid", cmd.Process.Pid, "err", err)
		leave()
	}()
	return ended, nil
}

// enter waits until one more session may begin, and counts it. It returns false if ctx has ended.
func (s *Server) enter(ctx context.Context, p *post) bool {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.room.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		most := p.now().Children
		switch {
		case ctx.Err() != nil:
			return false
		case (s.Most == 0 || s.sessions < s.Most) && (most == 0 || p.children < most):
			s.sessions++
			p.children++
			return true
		}
		s.room.Wait()
	}
}

func (s *Server) leave(p *post) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions--
	p.children--
	s.room.Broadcast()
}

// may counts a session in this minute, and reports whether the service may have it.
func (p *post) may(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.minute) >= time.Minute {
		p.minute, p.inMinute, p.refused = now, 0, false
	}
	p.inMinute++
	return p.service.PerMinute == 0 || p.inMinute <= p.service.PerMinute
}

// mayClient is may for one client, by the bounds for each client: on the sessions in a minute, and on those at a time.
func (p *post) mayClient(who netip.Prefix, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients.enter(who, p.service.ClientPerMinute, p.service.ClientChildren, now)
}

func (p *post) clientLeaves(who netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients.leave(who)
}

func (s *Server) refuse(p *post, from net.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.refused {
		s.Log.Warn("more sessions than there may be: others are refused", "service", p.service.Name, "from", from)
	}
	p.refused = true
}

// pause keeps a fault that repeats from taking a whole CPU.
func (s *Server) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}
