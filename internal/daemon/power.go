package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// CPU shares of processes are separate from limits on traffic. A CPU share exists on a process only. It uses groups of
// the CPU controller, and a state file of its own.

// Processors makes groups of the CPU controller; cpu.Machine implements it for the running machine.
type Processors interface {
	Place(pid int) (cpu.Group, error)
	Make(ctx context.Context, g *cpu.Group, pid int, s cpu.Share, also ...int) (elsewhere int, err error)
	Set(ctx context.Context, g cpu.Group, s cpu.Share) error
	Dissolve(ctx context.Context, g cpu.Group) error
	Members(g cpu.Group) []int
	Used(g cpu.Group, before uint64) (ns uint64)
	Waited(g cpu.Group) (ns uint64)
	KeepSlots(groups map[string]cpu.Share) error
	PolicyOf(pid int) (cpu.Policy, error)
	Strict(pid int, s cpu.Share) error
	Loose(pid int, was cpu.Policy) error
	CapacityPercent() float64
}

// powered is a process that has a CPU share, together with its descendants.
type powered struct {
	PID     int                       `json:"pid"`
	StartNS uint64                    `json:"start_boottime_ns"`
	UID     uint32                    `json:"uid"`
	Name    string                    `json:"name"`
	Wishes  [enforce.Owners]powerWish `json:"wishes"`
	UserUID uint32                    `json:"user_uid,omitempty"` // owner of the user's request
	Group   cpu.Group                 `json:"group"`
	Since   time.Time                 `json:"since"`
	// Was is the former scheduling policy of a process that has a deadline now; nil if it has none.
	Was *cpu.Policy `json:"was,omitempty"`

	watch   *pidWatch // watch on the process; nil = it has ended, or cannot be watched
	usedNS  uint64
	usedAt  time.Time
	percent float64 // CPU use in per cent of one processor, between the last two readings
	seen    autoSeen
	extra   extraSeen

	noDeadline error // why the requested deadline is not in force
}

func (p *powered) nothing() bool { return p.Wishes == [enforce.Owners]powerWish{} }

// powers holds all CPU shares.
type powers struct {
	mu         sync.Mutex // guards the fields below; taken before Daemon.mu where both are
	processors Processors // nil until first needed
	list       map[int]*powered
	isDown     bool
	extras     chan struct{} // signals that a process has a share of the rest
}

// SetPower implements apiserver.Backend.
func (d *Daemon) SetPower(ctx context.Context, by auth.Actor, req api.PowerRequest) (api.PowerResponse, error) {
	answer := api.PowerResponse{Version: api.Version}
	if err := checkPower(req); err != nil {
		return answer, err
	}
	res, err := d.resolver.Resolve(ctx, identity.PIDSubject(req.PID))
	if err == nil && res.Kind != enforce.KindTree {
		err = badPower("netnice power", "process 1 is the whole machine, which has all of its processors")
	}
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	old := d.powers.list[req.PID]
	lifts := req.Power == 0 && req.SliceNS == 0 && req.AutoBytesPerSec == 0
	if identity.IsNotFound(err) && old != nil && lifts {
		// The process has ended, and its descendants have its share.
		res, err = identity.Resolved{Kind: enforce.KindTree, Key: uint64(old.PID), StartBoottimeNS: old.StartNS, UID: old.UID, Name: old.Name}, nil
	}
	if err != nil {
		return answer, err
	}
	pid := int(res.Key)
	old = d.powers.list[pid]
	if lifts && old != nil {
		res.StartBoottimeNS, res.UID = old.StartNS, old.UID // also of descendants that are left
	}
	if old != nil && !identity.SameStart(old.StartNS, res.StartBoottimeNS) {
		return answer, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("descendants of an earlier process %d still have its power", pid), Hint: "netnice power lists them; it ends with the last"}
	}
	asked := powerWish{Power: req.Power, PeriodNS: req.PeriodNS, SliceNS: req.SliceNS, Extra: req.Extra, Auto: auto{RateBytesPerSec: req.AutoBytesPerSec}, SlotNS: req.SlotNS, Strict: req.Strict}
	target := auth.Target{Subject: identity.PIDSubject(pid), Kind: enforce.KindTree, UID: res.UID, Command: powerCommand(pid, asked)}
	if err := auth.Check(by, auth.Power, target); err != nil {
		return answer, err
	}
	next, was := powered{PID: pid, StartNS: res.StartBoottimeNS, UID: res.UID, Name: res.Name, Since: time.Now()}, powered{}
	if old != nil {
		next, was = *old, *old
	}
	if err := d.wantPower(by, &next, req, target); err != nil {
		return answer, err
	}
	answer.Changed = next.Wishes != was.Wishes
	if old == nil && !answer.Changed {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("no power of yours stands on process %d", pid))
		return answer, nil
	}
	if err := d.admitPower(ctx, &was, &next); err != nil {
		return answer, err
	}
	if answer.Changed && !req.DryRun {
		warnings, err := d.commitPower(ctx, by, old, &next)
		if err != nil {
			return answer, powerError(pid, err)
		}
		answer.Warnings = append(answer.Warnings, warnings...)
		answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.powerPath(), next.nothing())...)
		if p := d.powers.list[pid]; p != nil {
			next = *p
		}
		d.tellPowerSet(&was, &next, actorName(by))
		d.log.Info("power set", "pid", pid, "by", by.UID, "power", req.Power, "slice", time.Duration(req.SliceNS), "period", time.Duration(req.PeriodNS))
	}
	if !next.nothing() {
		answer.Warnings = append(answer.Warnings, autoWarnings(&next)...)
		shown := d.renderPower(&next)
		answer.Power = &shown
	}
	return answer, nil
}

// wantPower stores in p the CPU share that the caller requests.
func (d *Daemon) wantPower(by auth.Actor, p *powered, req api.PowerRequest, target auth.Target) error {
	owner := by.Owner()
	want := powerWish{Power: req.Power, PeriodNS: req.PeriodNS, SliceNS: req.SliceNS, Extra: req.Extra, SlotNS: req.SlotNS, Strict: req.Strict}
	if req.AutoBytesPerSec != 0 {
		if had := p.Wishes[owner]; had.Auto.RateBytesPerSec == req.AutoBytesPerSec {
			want = had
		} else {
			a := auto{RateBytesPerSec: req.AutoBytesPerSec}
			want = wishFor(max(math.Floor(min(a.guess(), cpu.MostPower, d.leftBeside(p))), 1), a)
		}
	}
	if owner == enforce.OwnerUser {
		if p.Wishes[owner] != (powerWish{}) && p.UserUID != by.UID {
			return auth.Check(by, auth.LiftOthers, target)
		}
		if want.SliceNS != 0 {
			return auth.Check(by, auth.ReservePower, target)
		}
		if want.SlotNS != 0 || want.Strict {
			return auth.Check(by, auth.SmoothPower, target)
		}
		p.UserUID = by.UID
	} else if want == (powerWish{}) {
		p.Wishes[enforce.OwnerUser] = want
	}
	p.Wishes[owner] = want
	return nil
}

// admitPower refuses a guarantee that does not fit together with the others. Before it refuses, it frees the shares of
// programs that have ended. The caller holds d.powers.mu.
func (d *Daemon) admitPower(ctx context.Context, was, next *powered) error {
	more := next.guaranteed()
	if more <= was.guaranteed() {
		return nil
	}
	if _, err := d.processors(); err != nil {
		return powerError(next.PID, err)
	}
	left := d.leftBeside(next)
	if more > left+1e-9 && d.endEmptyPowers(ctx, next.PID) {
		d.powersChanged()
		left = d.leftBeside(next)
	}
	if more <= left+1e-9 {
		return nil
	}
	most, sum, _ := d.promisedBeside(next)
	return &api.Error{
		Code: api.CodeConflict,
		Message: fmt.Sprintf("%s per cent of a processor cannot be guaranteed: %s of %s are promised already, %s are left for one more",
			percentText(more), percentText(sum), percentText(most), percentText(left)),
		Hint: "netnice power lists who has what; netnice power PID 0 lifts one",
	}
}

// promisedBeside returns the guarantees of the other processes, their sum, and the amount that they are parts of: the
// capacity of the processors, or the share around the process. An amount of 0 means a share without a bound. The caller
// holds d.powers.mu.
func (d *Daemon) promisedBeside(p *powered) (most, sum float64, promised []float64) {
	outer := d.outerPower(p.PID)
	for _, q := range d.powers.list {
		if q.PID != p.PID && d.outerPower(q.PID) == outer {
			promised = append(promised, q.guaranteed())
			sum += q.guaranteed()
		}
	}
	if outer == nil {
		if processors, err := d.processors(); err == nil {
			most = processors.CapacityPercent()
		}
		return most, sum, promised
	}
	if most = outer.guaranteed(); most == 0 {
		ceiling, _ := outer.holding()
		most = ceiling.percent()
	}
	return most, sum, promised
}

// leftBeside returns the most that can be guaranteed to a process, including its present guarantee.
func (d *Daemon) leftBeside(p *powered) float64 {
	most, sum, promised := d.promisedBeside(p)
	switch {
	case d.outerPower(p.PID) == nil:
		return cpu.Left(promised, most)
	case most == 0:
		return math.MaxInt32
	}
	return max(most-sum, 0)
}

func percentText(p float64) string { return fmt.Sprint(math.Round(p*100) / 100) }

// guaranteedPercent sums the guarantees of all processes but one. A share inside another process's share is a part of
// that one, and does not count again.
func (d *Daemon) guaranteedPercent(but int) (sum float64) {
	for _, p := range d.powers.list {
		if p.PID != but && d.outerPower(p.PID) == nil {
			sum += p.guaranteed()
		}
	}
	return sum
}

// outerPower returns the innermost share around a process, nil if there is none.
func (d *Daemon) outerPower(pid int) *powered {
	up := d.resolver.Ancestors(pid)
	for _, a := range up[min(1, len(up)):] {
		if p := d.powers.list[a.PID]; p != nil && identity.SameStart(p.StartNS, a.StartBoottimeNS) {
			return p
		}
	}
	return nil
}

// Powers implements apiserver.Backend.
func (d *Daemon) Powers(context.Context) (api.PowerList, error) {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	list := api.PowerList{Version: api.Version, Time: time.Now()}
	if processors, err := d.processors(); err == nil {
		list.CapacityPercent = processors.CapacityPercent()
	}
	list.GuaranteedPercent = d.guaranteedPercent(0)
	list.Powers = d.renderPowers()
	return list, nil
}

// shownPowers lists all CPU shares, by pid.
func (d *Daemon) shownPowers() []api.Power {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	return d.renderPowers()
}

func (d *Daemon) renderPowers() []api.Power {
	list := []api.Power{}
	for _, p := range d.powers.list {
		list = append(list, d.renderPower(p))
	}
	slices.SortFunc(list, func(a, b api.Power) int { return cmp.Compare(a.PID, b.PID) })
	return list
}

func (d *Daemon) renderPower(p *powered) api.Power {
	ceiling, _ := p.holding()
	share := p.share()
	a := api.Power{
		PID: p.PID, Name: d.powerName(p), UID: p.UID, Since: p.Since,
		Power: p.power(), Guaranteed: p.guaranteed() > 0,
		PeriodNS: share.PeriodNS, SliceNS: share.SliceNS, Reserved: p.reserved(),
		SlotNS: ceiling.SlotNS, Strict: ceiling.Strict, Deadline: p.Was != nil,
		Auto:    p.Wishes[enforce.OwnerAdmin].Auto.api(p.seen.short),
		Percent: p.percent, Group: cmp.Or(p.Group.Unit, p.Group.Dir),
	}
	if d.powers.processors != nil && p.Group.Dir != "" {
		a.Processes = len(d.powers.processors.Members(p.Group))
	}
	if admin := p.Wishes[enforce.OwnerAdmin]; admin.Extra {
		a.Extra, a.SliceNS, a.PeriodNS = true, admin.SliceNS, admin.PeriodNS
	}
	if p.noDeadline != nil {
		a.NoDeadline = p.noDeadline.Error()
	}
	for owner, name := range [enforce.Owners]string{api.OwnerAdmin, identity.UserName(p.UserUID)} {
		if p.Wishes[owner] != (powerWish{}) {
			a.Owners = append(a.Owners, name)
		}
	}
	return a
}

// processors returns the machine's mechanism for CPU shares. The first call finds it.
func (d *Daemon) processors() (Processors, error) {
	if d.powers.processors == nil {
		found, err := d.opts.OpenProcessors(d.resolver.Systemd())
		if err != nil {
			return nil, err
		}
		d.powers.processors = found
	}
	return d.powers.processors, nil
}

// powerError tells a process that ended meanwhile from a fault.
func powerError(pid int, err error) error {
	var known *api.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, unix.ESRCH):
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d has ended", pid), Hint: "ps -e", Cause: err}
	case errors.Is(err, enforce.ErrNotSupported):
		return &api.Error{Code: api.CodeNotSupported, Message: err.Error(), Hint: "cat /proc/cgroups /sys/fs/cgroup/cgroup.controllers shows whether the CPU controller is there", Cause: err}
	}
	return fmt.Errorf("set the power of process %d: %w", pid, err)
}

// autoWarnings says that a reservation for a rate is still a guess.
func autoWarnings(p *powered) []string {
	if a := p.Wishes[enforce.OwnerAdmin].Auto; a.RateBytesPerSec != 0 && a.PercentPerMbit == 0 {
		return []string{"what it needs is measured as soon as it sends; until then that is a guess"}
	}
	return nil
}

// administrator is the actor in whose name the daemon corrects reservations.
var administrator = auth.Actor{UID: 0}
