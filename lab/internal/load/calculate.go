package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
)

// PerByte is the time that a sender calculates for each byte to fill 100 Mbit/s with a whole processor. The
// computers of the papers on shares of the processor needed that much. For a sender that only copies, the fill of
// its segments decides.
const PerByte = 80 * time.Nanosecond

// Calculating is a sender that calculates for each byte that it writes, as a program of its own.
type Calculating struct {
	To      netip.AddrPort
	Write   int           // bytes at a time
	PerByte time.Duration // processor time; 0 = none
}

const calculatingRole = "NETNICE_LAB_CALCULATING"

// maybeCalculate turns the process into that sender, and does not return, if it was started as one.
func maybeCalculate() {
	if words := strings.Fields(os.Getenv(calculatingRole)); len(words) == 3 {
		fmt.Fprintln(os.Stderr, send(words[0], words[1], words[2]))
		os.Exit(1)
	}
}

// Start starts the sender in a namespace, and waits until it knows its speed. End it with bed.Kill.
func (c Calculating) Start(ctx context.Context, n *testbed.NetNS) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", calculatingRole, c.To, c.Write, c.PerByte.Nanoseconds()))
	cmd.SysProcAttr, cmd.Stderr = &syscall.SysProcAttr{Setsid: true}, os.Stderr
	if err := n.Start(cmd); err != nil {
		return nil, fmt.Errorf("start a sender: %w", err)
	}
	if err := testbed.Sleep(ctx, time.Second/2); err != nil {
		return nil, errors.Join(err, bed.Kill(cmd))
	}
	return cmd, nil
}

// Send starts the sender, calls prepare for it, and measures it for a while.
func (c Calculating) Send(ctx context.Context, n *testbed.NetNS, rx *testbed.Receiver, d time.Duration, prepare func(pid int) error) (s Sent, err error) {
	cmd, err := c.Start(ctx, n)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, bed.Kill(cmd)) }()
	if err := prepare(cmd.Process.Pid); err != nil {
		return s, err
	}
	return measure(ctx, rx, cmd.Process.Pid, d)
}

// send writes by TCP, size bytes at a time, and calculates the given time for each byte, until a write fails.
func send(to, size, perByteNS string) error {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	bytes, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	each, err := strconv.Atoi(perByteNS)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
		return err
	}
	unit := perMicrosecond()
	for buf := make([]byte, bytes); ; {
		calculate(unit * bytes * each / 1000)
		if _, err := unix.Write(fd, buf); err != nil {
			return err
		}
	}
}

// perMicrosecond returns the number of steps in a microsecond of the process's own time, not of wall-clock time.
func perMicrosecond() int {
	const much = 50_000_000
	begin := cpuTime()
	calculate(much)
	return int(much / max((cpuTime()-begin).Microseconds(), 1))
}

func cpuTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // this clock always exists
	return time.Duration(t.Nano())
}

var sink float64

func calculate(n int) {
	x := sink
	for range n {
		x = math.FMA(x, 0.5, 1)
	}
	sink = x
}
