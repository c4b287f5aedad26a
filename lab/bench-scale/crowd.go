package scale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// crowdName is the argv[0] of a member of the crowd: a process with many connections that all send as fast as they
// can.
const crowdName = "netnice-crowd"

// MaybeJoin turns the process into a member if it was started as one, and then never returns.
func MaybeJoin() {
	if os.Args[0] != crowdName || len(os.Args) != 3 {
		return
	}
	if err := join(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// join connects, reports that, waits for a line and sends until its input ends.
func join(to, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return fmt.Errorf("number of connections: %w", err)
	}
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", to); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for _, c := range conns {
		go func() {
			for {
				if _, err := c.Write(buf); err != nil {
					return // the receiver is gone: the end
				}
			}
		}()
	}
	if _, err := in.ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil // the backlog is discarded with the namespace
}

// member is one process of the crowd as the bench sees it.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// enlist starts a member; it has connected once ready returns.
func enlist(n *testbed.NetNS, to netip.AddrPort, sockets int, uid uint32) (*member, error) {
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{crowdName, to.String(), strconv.Itoa(sockets)}, Stderr: os.Stderr,
		Env: append(os.Environ(), "GOMAXPROCS=2"),
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid: true, Credential: &syscall.Credential{Uid: uid, Gid: uid},
		},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.Start(cmd); err != nil {
		return nil, fmt.Errorf("start a process of the crowd: %w", err)
	}
	return &member{cmd, in, bufio.NewReader(out)}, nil
}

func (m *member) ready() error {
	if _, err := m.out.ReadString('\n'); err != nil {
		return fmt.Errorf("a process of the crowd ended early: %w", err)
	}
	return nil
}

func (m *member) start() error {
	_, err := io.WriteString(m.in, "go\n")
	return err
}

func (m *member) end() error {
	return errors.Join(m.in.Close(), m.cmd.Process.Kill(), ended(m.cmd.Wait()))
}

// ended returns nil for a process that was killed, which is how members end.
func ended(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// sink receives and counts, by connection.
type sink struct {
	listener net.Listener
	mu       sync.Mutex
	conns    map[uint16]*counted // key: the sender's port
}

type counted struct {
	conn  *net.TCPConn
	bytes atomic.Uint64
}

func newSink(n *testbed.NetNS, at netip.AddrPort) (*sink, error) {
	s := &sink{conns: make(map[uint16]*counted)}
	err := n.Do(func() error {
		var err error
		s.listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	go s.accept()
	return s, nil
}

func (s *sink) accept() {
	trash := make([]byte, 1<<20) // never written to
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		c := &counted{conn: conn.(*net.TCPConn)}
		s.mu.Lock()
		s.conns[uint16(conn.RemoteAddr().(*net.TCPAddr).Port)] = c
		s.mu.Unlock()
		go c.count(trash)
	}
}

func (c *counted) count(trash []byte) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return
	}
	// An error ends the connection.
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := unix.Recvfrom(int(fd), trash, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			switch {
			case err == unix.EINTR:
			case err == unix.EAGAIN:
				return false
			case err != nil || n == 0:
				return true
			default:
				c.bytes.Add(uint64(n))
			}
		}
	})
}

// counts returns the bytes of every connection so far.
func (s *sink) counts() map[uint16]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[uint16]uint64, len(s.conns))
	for port, c := range s.conns {
		out[port] = c.bytes.Load()
	}
	return out
}

// accepted waits until there are that many connections.
func (s *sink) accepted(ctx context.Context, n int) (map[uint16]uint64, error) {
	for {
		counts := s.counts()
		if len(counts) >= n {
			return counts, nil
		}
		if err := testbed.Sleep(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (s *sink) close() error {
	err := s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		// Then no socket stays in TIME-WAIT; the call cannot fail on an open socket.
		_ = c.conn.SetLinger(0)
		err = errors.Join(err, c.conn.Close())
	}
	return err
}
