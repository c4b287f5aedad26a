package tftp

import (
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// end is one end of a path in memory.
type end struct {
	in       chan []byte
	out      func([]byte)
	closed   chan struct{}
	close    func()
	mu       sync.Mutex
	deadline time.Time
}

func newEnd() *end {
	e := &end{in: make(chan []byte, 1000), closed: make(chan struct{})}
	e.close = sync.OnceFunc(func() { close(e.closed) })
	return e
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = t
	return nil
}

func (e *end) Read(b []byte) (int, error) {
	e.mu.Lock()
	deadline := e.deadline
	e.mu.Unlock()
	var late <-chan time.Time
	if !deadline.IsZero() {
		late = time.After(time.Until(deadline))
	}
	select {
	case p := <-e.in:
		return copy(b, p), nil
	case <-late:
		return 0, os.ErrDeadlineExceeded
	case <-e.closed:
		return 0, os.ErrClosed
	}
}

func (e *end) Write(b []byte) (int, error) {
	e.out(append([]byte(nil), b...))
	return len(b), nil
}

// path is a bottleneck for a file. It takes the time each for a packet, and drops packets that find its queue full. With
// blocks set, the sender waits for room instead. ACKs arrive at once.
type path struct {
	each   time.Duration
	room   int
	blocks bool
	lost   map[int]bool // the n-th DATA packet, from 1 on
	noAck  map[int]bool // the n-th ACK
}

// send sends a file over the path. It returns the results of both ends, and the duration.
func (p path) send(t *testing.T, fileBytes int, o Options) (s Sent, r Received, took time.Duration) {
	t.Helper()
	a, b := newEnd(), newEnd()
	queue, data, acks := make(chan []byte, p.room), 0, 0
	a.out = func(packet []byte) {
		if data++; p.lost[data] {
			return
		}
		if p.blocks {
			queue <- packet
			return
		}
		select {
		case queue <- packet:
		default:
		}
	}
	b.out = func(packet []byte) {
		if acks++; !p.noAck[acks] {
			a.in <- packet
		}
	}
	go func() {
		for packet := range queue {
			time.Sleep(p.each)
			b.in <- packet
		}
	}()
	sent := make(chan error, 1)
	begun := time.Now()
	go func() {
		var err error
		s, err = Send(a, fileBytes, o)
		sent <- err
	}()
	r, err := Receive(b, o)
	took = time.Since(begun)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	close(queue)
	return s, r, took
}

const blockTime = 10 * time.Millisecond

func options() Options { return Options{WindowBlocks: 64, Timeout: 5 * time.Second} }

// A packet that is not lost is sent once, as fast as the path carries it.
func TestWholeFile(t *testing.T) {
	for _, blocks := range []int{1, 64, 65, 200, 70_000} { // numbers start again at 0 after 65,535
		synctest.Test(t, func(t *testing.T) {
			s, r, took := path{each: blockTime, room: 1, blocks: true}.send(t, (blocks-1)*BlockBytes, options())
			require.Equal(t, Sent{Blocks: blocks}, s)
			require.Equal(t, Received{Blocks: blocks}, r)
			require.Equal(t, time.Duration(blocks)*blockTime, took)
		})
	}
}

// Most of a window that finds a short queue is lost, and each time-out brings a little more.
func TestShortQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blocks = 100
		s, r, took := path{each: blockTime, room: 8}.send(t, (blocks-1)*BlockBytes, options())
		require.Equal(t, blocks, r.Blocks)
		require.Greater(t, s.Blocks, 3*blocks)
		require.Positive(t, s.Timeouts)
		require.Greater(t, took, 10*blocks*blockTime)
	})
}

// After a gap the window begins again behind the arrived blocks, without a time-out.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _ := path{each: blockTime, room: 1, blocks: true, lost: map[int]bool{10: true}}.send(t, 69*BlockBytes, options())
		require.Equal(t, 70, r.Blocks)
		require.Zero(t, s.Timeouts)
		require.Equal(t, 54, r.Useless) // 11 to 64
		require.Equal(t, 64+61, s.Blocks)
	})
}

// A lost ACK is repaired: a repeated block makes the receiver acknowledge again.
func TestLostAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _ := path{each: blockTime, room: 1, blocks: true, noAck: map[int]bool{1: true}}.send(t, 69*BlockBytes, options())
		require.Equal(t, 70, r.Blocks)
		require.Equal(t, 1, s.Timeouts)
	})
}

// Send and Receive end with their sockets.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnd(), newEnd()
		a.out, b.out = func([]byte) {}, func([]byte) {}
		time.AfterFunc(time.Second, a.close)
		time.AfterFunc(time.Second, b.close)
		_, err := Receive(b, options())
		require.ErrorIs(t, err, os.ErrClosed)
		s, err := Send(a, 10*BlockBytes, options())
		require.ErrorIs(t, err, os.ErrClosed)
		require.Equal(t, Sent{Blocks: 11}, s)
	})
}
