package daemon

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/netnamespace"
)

// queuesHere returns the number of holders of the queue in the namespace of the test's processes.
func (h *harness) queuesHere() int {
	h.t.Helper()
	netns, err := netnamespace.Of("self")
	require.NoError(h.t, err)
	return h.fake.HeldQueues(netns)
}

func (h *harness) setItself(pid int, subject string, w api.Wish) {
	h.t.Helper()
	h.mustSet(auth.Actor{PID: pid}, subject, w)
}

// A program that limits its own egress, as netnice run does, finds a queue when the answer arrives. Other programs get
// no queue.
func TestQueueBeforeAProgramBegins(t *testing.T) {
	for name, c := range map[string]struct {
		subject string // without the process
		wish    api.Wish
		other   bool // another process asks
		held    int
	}{
		"up":                     {"", up(2e6), false, 1},
		"total":                  {"", total(2e6), false, 1},
		"part of the traffic":    {"to:any/udp@", up(2e6), false, 1},
		"down":                   {"", api.Wish{DownBytesPerSec: ptr(uint64(2e6))}, false, 0},
		"weight":                 {"", api.Wish{Weight: ptr(uint32(50))}, false, 0},
		"another one's, no UDP":  {"", up(2e6), true, 0},
		"another's, the traffic": {"to:any/udp@", up(2e6), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &enforcetest.Kernel{}
			h := start(t, fake, testOptions(t, fake))
			cmd := sleeper(t)
			pid := cmd.Process.Pid
			if c.other {
				pid = os.Getpid()
			}
			h.setItself(pid, c.subject+pidSubject(cmd), c.wish)
			if c.held == 0 {
				time.Sleep(2 * h.opts.Tick) // for queues that no process waits for
			}
			require.Equal(t, c.held, h.queuesHere())
		})
	}
}

// sleeperWithSocket is a sleeper that has a socket open.
func sleeperWithSocket(t *testing.T, network string) *exec.Cmd {
	t.Helper()
	var s interface {
		File() (*os.File, error)
		Close() error
	}
	var err error
	if network == "udp" {
		s, err = net.ListenUDP(network, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	} else {
		s, err = net.ListenTCP(network, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	}
	require.NoError(t, err)
	defer s.Close()
	file, err := s.File()
	require.NoError(t, err)
	defer file.Close()
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{file}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	return cmd
}

// A program that has no datagram socket after a while loses its queue. A program that has one keeps the queue as long
// as its limit exists.
func TestQueueIsHeldForDatagrams(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	cmd := sleeper(t)
	own := func() { h.setItself(cmd.Process.Pid, pidSubject(cmd), up(2e6)) }
	own()
	require.Equal(t, 1, h.queuesHere())
	h.eventually("TCP lets it go", func() bool { return h.queuesHere() == 0 })

	// The next program asks again.
	cmd = sleeperWithSocket(t, "udp")
	own()
	require.Equal(t, 1, h.queuesHere())
	time.Sleep((queueTrialTicks + queueKeptTicks + 5) * h.opts.Tick)
	require.Equal(t, 1, h.queuesHere(), "UDP keeps it")
	_, err := h.remove(root, pidSubject(cmd))
	require.NoError(t, err)
	h.eventually("it goes with the limit", func() bool { return h.queuesHere() == 0 })

	// The limit is on a program that has such a socket already.
	h.mustSet(root, pidSubject(cmd), api.Wish{DownBytesPerSec: ptr(uint64(1e6))})
	h.mustSet(root, pidSubject(sleeperWithSocket(t, "tcp")), up(2e6))
	require.Zero(t, h.queuesHere())
	h.mustSet(root, pidSubject(cmd), up(2e6))
	h.eventually("it is held for what runs", func() bool { return h.queuesHere() == 1 })
	h.mustSet(root, pidSubject(cmd), up(0))
	h.eventually("it goes with what is sent", func() bool { return h.queuesHere() == 0 })
}

// No program waits for longer than half a second, and one whose queue cannot be made begins at once.
func TestQueueThatIsNotThereSoon(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	cmd := sleeperWithSocket(t, "udp") // it keeps its queue
	own := func(rate uint64) time.Duration {
		began := time.Now()
		h.setItself(cmd.Process.Pid, pidSubject(cmd), up(rate))
		return time.Since(began)
	}
	until := make(chan struct{})
	fake.SlowQueues(until)
	require.GreaterOrEqual(t, own(2e6), queueWait)
	require.Zero(t, h.queuesHere())
	close(until)
	h.eventually("it comes later", func() bool { return h.queuesHere() == 1 })

	_, err := h.remove(root, pidSubject(cmd))
	require.NoError(t, err)
	h.eventually("it has gone", func() bool { return h.queuesHere() == 0 })
	fake.Fail("HoldQueue", errors.New("no memory"))
	calls := fake.Calls("HoldQueue")
	own(3e6)
	require.Equal(t, calls+1, fake.Calls("HoldQueue"))
	fake.Fail("HoldQueue", nil)
	own(4e6)
	require.Equal(t, 1, h.queuesHere(), "the next tries again")
}

// A program that a rule matches has a queue soon after its exec.
func TestQueueForRules(t *testing.T) {
	a, b, free := name("a"), name("b"), name("c")
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'")+rule(b, "to = '192.0.2.0/24'\nup = '1MB/s'")+rule(free, "down = '1MB/s'"), nil)
	c.started(free)
	require.Zero(t, c.queuesHere())
	for _, program := range []string{a, b} {
		pid := c.started(program)
		c.eventually("it is held", func() bool { return c.queuesHere() == 1 })
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		c.eventually("it goes with the process", func() bool { return c.queuesHere() == 0 })
	}
}

// lineWriter is called with each line of a log.
type lineWriter func(line string)

// Write implements io.Writer.
func (w lineWriter) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

// The log says how long after an exec the limits of rules were in force. The time for a queue does not count.
func TestTimeAfterExecIsWithoutTheQueue(t *testing.T) {
	a := name("a")
	var daemon atomic.Pointer[Daemon]
	queues := make(chan int, 10) // at each line
	c := newClerk(t, new(enforcetest.Kernel), rule(a, "up = '1MB/s'"), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(lineWriter(func(line string) {
			if d := daemon.Load(); d != nil && strings.Contains(line, "rules applied") && strings.Contains(line, "after_exec=") {
				d.queues.mu.Lock()
				defer d.queues.mu.Unlock()
				queues <- len(d.queues.held)
			}
		}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	daemon.Store(c.Daemon)
	c.started(a)
	require.Len(t, queues, 1)
	require.Zero(t, <-queues)
	c.eventually("it is held", func() bool { return c.queuesHere() == 1 })
}

// Checks of processes take a while. A request for a queue meanwhile gets its answer, and the older result of a check
// does not take the queue away.
func TestQueuesAreLookedAtWithoutTheirLock(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Tick = time.Hour // only the test itself starts checks
	h := start(t, fake, opts)
	cmd := sleeper(t)
	h.setItself(cmd.Process.Pid, pidSubject(cmd), up(2e6))
	require.Equal(t, 1, h.queuesHere())
	nodes, err := h.nodesFor(pidSubject(cmd))
	require.NoError(t, err)
	later := time.Now().Add((queueTrialTicks + queueKeptTicks) * opts.Tick)
	looks := 0
	look := func(again bool) []func() {
		return h.unwantedQueues(later, func(pid int) (sends, known bool) {
			looks++
			require.Equal(t, cmd.Process.Pid, pid)
			if !again {
				return false, true
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				made, ok := h.readyQueue(nodes[0].ID, pid, false)
				if ok {
					<-made
				}
			}()
			select {
			case <-answered:
			case <-time.After(soon):
				t.Error("who asks for a queue waits for a look at processes")
			}
			return false, true
		})
	}
	require.Empty(t, look(true))
	require.Empty(t, look(true), "it was asked for meanwhile")
	require.Empty(t, look(false), "it is kept for a while after the last that wants it")
	later = later.Add(queueKeptTicks * opts.Tick)
	require.Len(t, look(false), 1)
	require.Equal(t, 3, looks)
}
