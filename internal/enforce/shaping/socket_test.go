package shaping

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce/pacing"
	"github.com/netnice/netnice/internal/testutil"
)

const sendRate, receiveRate = 7001, 7002 // TCP_SNDRATE and TCP_RCVRATE

// limitSocket sets an option of a socket.
func limitSocket(t *testing.T, c syscall.Conn, level, option int, rate uint64) {
	t.Helper()
	raw, err := c.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptUint64(int(fd), level, option, rate) }))
	must(t, err)
}

// apart moves this process to a cgroup of its own, and returns options by which the kernel side sees only that cgroup.
// No other netnice on this machine then handles the sockets' options first.
func apart(t *testing.T) pacing.Options {
	t.Helper()
	testutil.RequireRoot(t)
	opts := options()
	root := opts.CgroupRoot
	enter := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	_, was, _ := strings.Cut(string(text), "0::")
	was, _, _ = strings.Cut(was, "\n")
	opts.CgroupRoot = filepath.Join(root, fmt.Sprintf("%sshaping-%d", testutil.RunName(), os.Getpid()))
	must(t, os.Mkdir(opts.CgroupRoot, 0o755))
	t.Cleanup(func() { must(t, os.Remove(opts.CgroupRoot)) })
	must(t, enter(opts.CgroupRoot))
	t.Cleanup(func() { must(t, enter(filepath.Join(root, was))) })
	return opts
}

func nodesGone(t *testing.T, k *Kernel) {
	t.Helper()
	for begin := time.Now(); len(k.pacing.SocketNodes()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("nodes of sockets that are closed: %+v", k.pacing.SocketNodes())
		}
	}
}

// TestSocketsLimitThemselves checks limits that sockets set on themselves: one on datagrams that a socket sends, and
// one on ingress. No daemon requests them.
func TestSocketsLimitThemselves(t *testing.T) {
	opts := apart(t)
	const limit = 1e6
	far := elsewhere(t)
	before := devices(t)
	k, err := Open(opts)
	must(t, err)
	defer func() {
		must(t, k.Down())
		if after := devices(t); !slices.Equal(before, after) {
			t.Errorf("devices were %v and are %v", before, after)
		}
	}()
	judge := func(what string, bytes *atomic.Int64, per float64) {
		t.Helper()
		time.Sleep(2 * time.Second)
		from, begin := bytes.Load(), time.Now()
		time.Sleep(2 * time.Second)
		got := float64(bytes.Load()-from) * per / time.Since(begin).Seconds()
		t.Logf("%s: %.4f of the limit", what, got/limit)
		if got < limit*(1-tolerance(0.05)) || got > limit*(1+tolerance(0.05)) {
			t.Errorf("%s: %.0f bytes/s, want %.0f", what, got, limit)
		}
	}

	to, came := sink(t, far, theirs4)
	sender, err := net.DialUDP("udp", nil, to)
	must(t, err)
	limitSocket(t, sender, unix.IPPROTO_UDP, sendRate, limit)
	go func() {
		for buf := make([]byte, 1400); ; {
			if _, err := sender.Write(buf); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	queued(t, k)
	judge("datagrams sent", came, 1428.0/1400)
	// Work on queues, which holds the lock, does not delay the end of the limit.
	k.mu.Lock()
	limitSocket(t, sender, unix.IPPROTO_UDP, sendRate, 0)
	nodesGone(t, k)
	for begin, from := time.Now(), came.Load(); came.Load()-from < 4*limit; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 2*time.Second {
			t.Errorf("lifted, and %d bytes came in 2 s", came.Load()-from)
			break
		}
	}
	k.mu.Unlock()
	must(t, sender.Close())

	var l net.Listener
	must(t, far.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(theirs6, "0"))
		return err
	}))
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, zeros{}) // until the peer closes the connection
				_ = c.Close()
			}()
		}
	}()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		inner := raw.Control(func(fd uintptr) { err = unix.SetsockoptUint64(int(fd), unix.IPPROTO_TCP, receiveRate, limit) })
		return errors.Join(err, inner)
	}}
	receiver, err := d.Dial("tcp", l.Addr().String())
	must(t, err)
	got := new(atomic.Int64)
	go func() {
		for buf := make([]byte, 1<<16); ; {
			n, err := receiver.Read(buf)
			if err != nil {
				return
			}
			got.Add(int64(n))
		}
	}()
	for begin := time.Now(); len(k.pacing.SocketNodes()) == 0 || !k.Attached()["shape_in"]; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("no node")
		}
	}
	judge("received by TCP", got, 1500.0/1428)
	must(t, receiver.Close())
	nodesGone(t, k)
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	pause(len(b))
	return len(b), nil
}
