package clocktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/netnice/netnice/internal/enforce"
)

// Generated names as tests use them.
type (
	// State is struct nn_clock.
	State = clockNnClock
	// Op is one call into clock.h. Rate is in bytes/s and not 0, Weight is
	// 1..10000 or 0 for the default.
	Op = clockNnTestOp
	// Result is the answer of the call, with the state after it.
	Result = clockNnTestResult
	// Line is a question for the bytes that a link carries: see clock.Line.
	Line = clockNnTestLine
)

// These modes say what an Op does in addition to advancing the clock: see enum nn_test_mode.
const (
	Ask        = uint32(clockNnTestModeNN_TEST_ASK)
	Charge     = uint32(clockNnTestModeNN_TEST_CHARGE)
	Reserve    = uint32(clockNnTestModeNN_TEST_RESERVE)
	Redeem     = uint32(clockNnTestModeNN_TEST_REDEEM)
	RedeemLate = uint32(clockNnTestModeNN_TEST_REDEEM_LATE)
)

// Sizes of the clock, as types.h has them.
const (
	VTimeShift    = 20 // virtual time is in 2^-20 bytes per unit of weight
	SlotShift     = 22
	SlotBytes     = 1 << (SlotShift - VTimeShift) // per unit of weight
	WheelSlots    = 64
	DefaultWeight = enforce.DefaultWeight
	// FirstVirtualTime is the virtual time at which a new clock begins in production.
	FirstVirtualTime = 1 << 40
)

// ErrMissing says that a call found no clock, or no room for the class.
var ErrMissing = errors.New("no such clock, or too many classes")

// Runner is the loaded test object. It is not for concurrent use.
type Runner struct {
	obj    clockObjects
	packet []byte
	nodes  uint32
}

// Open loads the object. It needs CAP_BPF and CAP_NET_ADMIN.
func Open() (*Runner, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked memory limit: %w", err)
	}
	r := &Runner{packet: make([]byte, 14)} // the shortest packet that the kernel accepts
	if err := loadClockObjects(&r.obj, nil); err != nil {
		return nil, fmt.Errorf("load the test object: %w", err)
	}
	return r, nil
}

// Close unloads the object.
func (r *Runner) Close() error { return r.obj.Close() }

// NewClock makes a clock. It returns the node of the clock, which callers set in Op.Node.
func (r *Runner) NewClock(s State) (uint32, error) {
	r.nodes++
	if err := r.obj.Clocks.Update(r.nodes, &s, ebpf.UpdateNoExist); err != nil {
		return 0, fmt.Errorf("make clock %d: %w", r.nodes, err)
	}
	return r.nodes, nil
}

// Clock returns the state of a clock.
func (r *Runner) Clock(node uint32) (State, error) {
	var s State
	if err := r.obj.Clocks.Lookup(node, &s); err != nil {
		return s, fmt.Errorf("read clock %d: %w", node, err)
	}
	return s, nil
}

// SetClock overwrites the state of a clock.
func (r *Runner) SetClock(node uint32, s State) error {
	if err := r.obj.Clocks.Update(node, &s, ebpf.UpdateExist|ebpf.UpdateLock); err != nil {
		return fmt.Errorf("write clock %d: %w", node, err)
	}
	return nil
}

// RemoveClock removes a clock. RemoveClass removes its classes.
func (r *Runner) RemoveClock(node uint32) error {
	if err := r.obj.Clocks.Delete(node); err != nil {
		return fmt.Errorf("remove clock %d: %w", node, err)
	}
	return nil
}

// RemoveClass removes a class. The kernel does the same with the least recently used class when the map is full. A
// class that does not exist is no error.
func (r *Runner) RemoveClass(node uint32, child uint64) error {
	err := r.obj.Classes.Delete(&clockNnClassKey{Node: node, Child: child})
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove class %d of clock %d: %w", child, node, err)
	}
	return nil
}

// Line returns the bytes that a link carries.
func (r *Runner) Line(l Line) (bytes uint64, err error) {
	if err := r.obj.Line.Set(&l); err != nil {
		return 0, fmt.Errorf("pass the question: %w", err)
	}
	if _, err := r.obj.NnTestLineStep.Run(&ebpf.RunOptions{Data: r.packet}); err != nil {
		return 0, fmt.Errorf("run the question: %w", err)
	}
	if err := r.obj.Line.Get(&l); err != nil {
		return 0, fmt.Errorf("read the answer: %w", err)
	}
	return l.Bytes, nil
}

// Do makes one call.
func (r *Runner) Do(op Op) (Result, error) {
	var out Result
	if err := r.obj.Op.Set(&op); err != nil {
		return out, fmt.Errorf("pass the call: %w", err)
	}
	if _, err := r.obj.NnTestStep.Run(&ebpf.RunOptions{Data: r.packet}); err != nil {
		return out, fmt.Errorf("run the call: %w", err)
	}
	if err := r.obj.Result.Get(&out); err != nil {
		return out, fmt.Errorf("read the answer: %w", err)
	}
	if out.Missing != 0 {
		return out, fmt.Errorf("clock %d, class %d: %w", op.Node, op.Child, ErrMissing)
	}
	return out, nil
}

// Bench repeats a call. Each time it uses the next one of the given number of classes, and a time that is later by
// step. It returns the mean time that a call took inside the kernel.
func (r *Runner) Bench(op Op, classes uint64, step time.Duration, times uint32) (time.Duration, error) {
	b := clockNnTestBench{Classes: classes, StepNs: uint64(step)}
	b.Op.NowNs, b.Op.Rate, b.Op.BurstBytes = op.NowNs, op.Rate, op.BurstBytes
	b.Op.WireBytes, b.Op.Node, b.Op.Weight, b.Op.Mode = op.WireBytes, op.Node, op.Weight, op.Mode
	if err := r.obj.Bench.Set(&b); err != nil {
		return 0, fmt.Errorf("pass the benchmark: %w", err)
	}
	_, took, err := r.obj.NnTestBenchStep.Benchmark(r.packet, int(times), nil)
	if err != nil {
		return 0, fmt.Errorf("run the benchmark: %w", err)
	}
	return took, nil
}
