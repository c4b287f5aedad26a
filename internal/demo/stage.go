package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/testbed"
)

// The receiver has a port for each program, so that it can distinguish them.
const (
	portProgram = 5001 + iota
	portChild
	portOne
	portMany
	portLimited
)

// stage holds the objects that the demo makes and removes.
type stage struct {
	netnice      netnice
	daemonBefore bool // a daemon ran already
	pair         *testbed.Pair
	rx           *testbed.Receiver
	other        *testbed.Pair // with HTB
	otherRx      *testbed.Receiver
	senders      []*testbed.Sender
	home         home // a slow line, with a call
	uid          uint32
	limited      []string // processes whose limits the demo lifts at the end
	userLimited  bool
}

func (s *stage) setUp(ctx context.Context) error {
	_, s.daemonBefore = s.daemon(ctx)
	var err error
	if s.uid, err = spareUID(ctx); err != nil {
		return err
	}
	if s.pair, err = testbed.NewPair(); err != nil {
		return err
	}
	cfg := testbed.ReceiverConfig{Interval: counted}
	for port := uint16(portProgram); port <= portLimited; port++ {
		cfg.Ports = append(cfg.Ports, testbed.Port{Number: port})
	}
	s.rx, err = testbed.StartReceiver(s.pair.B, cfg)
	return err
}

// setUpHTB makes a second link of the same kind with HTB on it.
func (s *stage) setUpHTB(bytesPerSec uint64) error {
	var err error
	if s.other, err = testbed.NewPair(); err != nil {
		return err
	}
	if err := testbed.ShapeHTB(s.other.A, bytesPerSec); err != nil {
		return err
	}
	s.otherRx, err = testbed.StartReceiver(s.other.B, testbed.ReceiverConfig{Interval: counted})
	return err
}

// sender starts a program that will send over the pair.
func (s *stage) sender(pair *testbed.Pair, port uint16, cfg testbed.SenderConfig) (*testbed.Sender, error) {
	cfg.To = netip.AddrPortFrom(pair.B4, port).String()
	cfg.Congestion = "cubic"
	tx, err := testbed.StartSender(pair.A, cfg)
	if err != nil {
		return nil, err
	}
	s.senders = append(s.senders, tx)
	return tx, nil
}

// daemon returns the pid of the daemon and whether one runs.
func (s *stage) daemon(ctx context.Context) (int, bool) {
	out, err := s.netnice.Output(ctx, "status", "--json")
	if err != nil {
		return 0, false
	}
	var status api.Status
	if json.Unmarshal(out, &status) != nil {
		return 0, false
	}
	return status.PID, true
}

// close removes everything; gone says whether a daemon that the demo started has left.
func (s *stage) close(ctx context.Context) (gone bool, err error) {
	var errs []error
	pid, running := 0, false
	if !s.daemonBefore {
		pid, running = s.daemon(ctx)
	}
	if s.userLimited {
		errs = append(errs, s.liftUser(ctx))
	}
	// Data left in a socket would hold its limit until TCP gives up, because its link disappears.
	for _, pid := range s.limited {
		_, err := s.netnice.Output(ctx, "unset", "--pid", pid)
		errs = append(errs, err)
	}
	errs = append(errs, s.home.close()...)
	for _, tx := range s.senders {
		errs = append(errs, tx.Close())
	}
	for _, rx := range []*testbed.Receiver{s.rx, s.otherRx} {
		if rx != nil {
			errs = append(errs, rx.Close())
		}
	}
	for _, p := range []*testbed.Pair{s.pair, s.other} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if running {
		gone = awaitEnd(ctx, pid)
	}
	return gone || !running, errors.Join(errs...)
}

// user returns the spare user's id for commands.
func (s *stage) user() string { return strconv.FormatUint(uint64(s.uid), 10) }

func (s *stage) liftUser(ctx context.Context) error {
	_, err := s.netnice.Output(ctx, "unset", "--user", s.user())
	if err == nil {
		s.userLimited = false
	}
	return err
}

// awaitEnd waits until the process has ended, or until ctx ends.
func awaitEnd(ctx context.Context, pid int) bool {
	for {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return true
		}
		if testbed.Sleep(ctx, 50*time.Millisecond) != nil {
			return false
		}
	}
}

// spareUID returns a user id without a name and without a process.
func spareUID(ctx context.Context) (uint32, error) {
	used := make(map[uint32]bool)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // otherwise it has ended
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				used[st.Uid] = true
			}
		}
	}
	for uid := uint32(64100); uid < 64200; uid++ {
		if used[uid] {
			continue
		}
		if _, err := account.Machine().UserOf(ctx, uid); errors.Is(err, account.ErrUnknown) {
			return uid, nil
		}
	}
	return 0, errors.New("find a user id without processes: 64100 to 64199 are all in use")
}
