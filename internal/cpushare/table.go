// Package cpushare keeps CPU shares of processes: the requests, their admission, the groups of the CPU
// controller that enforce them, and their state file. A share is on a process and its descendants, and separate from
// limits on traffic. It does not outlast the boot.
package cpushare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// entry is a process that has a CPU share, together with its descendants.
type entry struct {
	PID     int                  `json:"pid"`
	StartNS uint64               `json:"start_boottime_ns"`
	UID     uint32               `json:"uid"`
	Name    string               `json:"name"`
	Wishes  [enforce.Owners]wish `json:"wishes"`
	UserUID uint32               `json:"user_uid,omitempty"` // owner of the user's request
	Group   cpu.Group            `json:"group"`
	Since   time.Time            `json:"since"`
	// Was is the former scheduling policy of a process that has a deadline now; nil if it has none.
	Was *cpu.Policy `json:"was,omitempty"`

	watch   *identity.Watch // nil = the process has ended, or cannot be watched
	usedNS  uint64
	usedAt  time.Time
	percent float64 // CPU use in per cent of one processor, between the last two readings
	seen    autoSeen
	extra   extraSeen

	noDeadline error // why the requested deadline is not in force
}

func (p *entry) nothing() bool { return p.Wishes == [enforce.Owners]wish{} }

// Host is the program that keeps the shares, and what they need from it. The table calls it with its own lock held, so
// the host must not call the table while it holds a lock that these methods take.
type Host interface {
	// Save writes the state file, or removes it if there is no share. The host notes a failure, and calls Rewrite later.
	Save(isEmpty bool, content *Saved)
	// Load reads the state file into content. It returns false if there is no usable file.
	Load(content *Saved) (found bool, err error)
	// Unwritten returns a warning if the last change is not in the file; lifts says that the change lifted a share.
	Unwritten(lifts bool) []string
	// CountsAs returns the user whose quota a user's shares are in.
	CountsAs(uid uint32) uint32
	// MustStayIn returns the cgroup that the caller may not leave for another one in that slice, "" if there is none.
	MustStayIn(by auth.Actor, origin, slice string) string
	// SentBytes returns the bytes that a process and its descendants have sent since they have a limit on traffic. It
	// returns false if they have none.
	SentBytes(pid int, startNS uint64) (bytes uint64, ok bool)
	// Publish gives an event to root and to those users (0 = nobody). It calls event only if somebody listens.
	Publish(uids [2]uint32, event func() api.Event)
	// ProgramDue schedules a call of LearnNames: a process that may soon execute another program has a new share.
	ProgramDue()
}

// Options are what a table needs.
type Options struct {
	Log      *slog.Logger
	Resolver *identity.Resolver
	BootID   string
	// Open finds the machine's mechanism. The table calls it when a share is needed first.
	Open func(cpu.Scopes) (Processors, error)
	Host Host
}

// Table holds all CPU shares.
type Table struct {
	log      *slog.Logger
	resolver *identity.Resolver
	bootID   string
	open     func(cpu.Scopes) (Processors, error)
	host     Host
	extras   chan struct{} // signals that a process has a share of the rest

	mu     sync.Mutex // guards the fields below
	found  Processors // nil until first needed
	list   map[int]*entry
	refuse error // the answer to requests after Lift; nil = they are accepted
}

// New returns a table without shares.
func New(o Options) *Table {
	return &Table{
		log: o.Log, resolver: o.Resolver, bootID: o.BootID, open: o.Open, host: o.Host,
		extras: make(chan struct{}, 1), list: make(map[int]*entry),
	}
}

// Set gives a process the share that the caller requests, changes it, or lifts it. An error with a remedy is an
// *api.Error.
func (t *Table) Set(ctx context.Context, by auth.Actor, req api.PowerRequest) (api.PowerResponse, error) {
	answer := api.PowerResponse{Version: api.Version}
	if err := check(req); err != nil {
		return answer, err
	}
	res, err := t.resolver.Resolve(ctx, identity.PIDSubject(req.PID))
	if err == nil && res.Kind != enforce.KindTree {
		err = refused("netnice power", "process 1 is the whole machine, which has all of its processors")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	res, old, err := t.holder(req, res, err)
	if err != nil {
		return answer, err
	}
	pid := int(res.Key)
	asked := wish{Power: req.Power, PeriodNS: req.PeriodNS, SliceNS: req.SliceNS, Extra: req.Extra, Auto: auto{RateBytesPerSec: req.AutoBytesPerSec}, SlotNS: req.SlotNS, Strict: req.Strict}
	target := auth.Target{Subject: identity.PIDSubject(pid), Kind: enforce.KindTree, UID: res.UID, Command: command(pid, asked)}
	if err := auth.Check(by, auth.Power, target); err != nil {
		return answer, err
	}
	next, was := entry{PID: pid, StartNS: res.StartBoottimeNS, UID: res.UID, Name: res.Name, Since: time.Now()}, entry{}
	if old != nil {
		next, was = *old, *old
	}
	if err := t.want(by, &next, req, target); err != nil {
		return answer, err
	}
	answer.Changed = next.Wishes != was.Wishes
	if old == nil && !answer.Changed {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("no power of yours stands on process %d", pid))
		return answer, nil
	}
	if err := t.admit(ctx, &was, &next); err != nil {
		return answer, err
	}
	if answer.Changed && !req.DryRun {
		if answer.Warnings, err = t.bringIntoForce(ctx, by, req, old, &next); err != nil {
			return answer, err
		}
	}
	if !next.nothing() {
		answer.Warnings = append(answer.Warnings, autoWarnings(&next)...)
		shown := t.render(&next)
		answer.Power = &shown
	}
	return answer, nil
}

// holder returns the process of a request, and its present share, nil if it has none. It takes what the search for the
// process has found. After the end of a process its descendants have its share, which can still be lifted. The caller
// holds t.mu.
func (t *Table) holder(req api.PowerRequest, res identity.Resolved, err error) (identity.Resolved, *entry, error) {
	old := t.list[req.PID]
	lifts := req.Power == 0 && req.SliceNS == 0 && req.AutoBytesPerSec == 0
	if identity.IsNotFound(err) && old != nil && lifts {
		res, err = identity.Resolved{Kind: enforce.KindTree, Key: uint64(old.PID), StartBoottimeNS: old.StartNS, UID: old.UID, Name: old.Name}, nil
	}
	if err != nil {
		return res, nil, err
	}
	pid := int(res.Key)
	old = t.list[pid]
	if lifts && old != nil {
		res.StartBoottimeNS, res.UID = old.StartNS, old.UID // also of descendants that are left
	}
	if old != nil && !identity.SameStart(old.StartNS, res.StartBoottimeNS) {
		return res, nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("descendants of an earlier process %d still have its power", pid), Hint: "netnice power lists them; it ends with the last"}
	}
	return res, old, nil
}

// bringIntoForce replaces the share old by next, nil = there was none, and publishes the change. Afterwards next is the
// share in force. The caller holds t.mu.
func (t *Table) bringIntoForce(ctx context.Context, by auth.Actor, req api.PowerRequest, old, next *entry) (warnings []string, err error) {
	was := entry{}
	if old != nil {
		was = *old
	}
	if warnings, err = t.commit(ctx, by, old, next); err != nil {
		return nil, failure(next.PID, err)
	}
	warnings = append(warnings, t.host.Unwritten(next.nothing())...)
	if p := t.list[next.PID]; p != nil {
		*next = *p
	}
	t.tellSet(&was, next, identity.OwnerName(by.Owner(), by.UID))
	t.log.Info("power set", "pid", next.PID, "by", by.UID, "power", req.Power, "slice", time.Duration(req.SliceNS), "period", time.Duration(req.PeriodNS))
	return warnings, nil
}

// want stores in p the CPU share that the caller requests.
func (t *Table) want(by auth.Actor, p *entry, req api.PowerRequest, target auth.Target) error {
	owner := by.Owner()
	want := wish{Power: req.Power, PeriodNS: req.PeriodNS, SliceNS: req.SliceNS, Extra: req.Extra, SlotNS: req.SlotNS, Strict: req.Strict}
	if req.AutoBytesPerSec != 0 {
		if had := p.Wishes[owner]; had.Auto.RateBytesPerSec == req.AutoBytesPerSec {
			want = had
		} else {
			a := auto{RateBytesPerSec: req.AutoBytesPerSec}
			want = wishFor(max(math.Floor(min(a.guess(), cpu.MostPower, t.leftBeside(p))), 1), a)
		}
	}
	if owner == enforce.OwnerUser {
		if p.Wishes[owner] != (wish{}) && p.UserUID != by.UID {
			return auth.Check(by, auth.LiftOthers, target)
		}
		if want.SliceNS != 0 {
			return auth.Check(by, auth.ReservePower, target)
		}
		if want.SlotNS != 0 || want.Strict {
			return auth.Check(by, auth.SmoothPower, target)
		}
		p.UserUID = by.UID
	} else if want == (wish{}) {
		p.Wishes[enforce.OwnerUser] = want
	}
	p.Wishes[owner] = want
	return nil
}

// admit refuses a guarantee that does not fit together with the others. Before it refuses, it frees the shares of
// programs that have ended. The caller holds t.mu.
func (t *Table) admit(ctx context.Context, was, next *entry) error {
	more := next.guaranteed()
	if more <= was.guaranteed() {
		return nil
	}
	if _, err := t.processors(); err != nil {
		return failure(next.PID, err)
	}
	left := t.leftBeside(next)
	if more > left+1e-9 && t.endEmpty(ctx, next.PID) {
		t.rewrite()
		left = t.leftBeside(next)
	}
	if more <= left+1e-9 {
		return nil
	}
	most, sum, _ := t.promisedBeside(next)
	return &api.Error{
		Code: api.CodeConflict,
		Message: fmt.Sprintf("%s per cent of a processor cannot be guaranteed: %s of %s are promised already, %s are left for one more",
			percentText(more), percentText(sum), percentText(most), percentText(left)),
		Hint: "netnice power lists who has what; netnice power PID 0 lifts one",
	}
}

// promisedBeside returns the guarantees of the other processes, their sum, and the amount that they are parts of: the
// capacity of the processors, or the share around the process. An amount of 0 means a share without a bound. The caller
// holds t.mu.
func (t *Table) promisedBeside(p *entry) (most, sum float64, promised []float64) {
	outer := t.outer(p.PID)
	for _, q := range t.list {
		if q.PID != p.PID && t.outer(q.PID) == outer {
			promised = append(promised, q.guaranteed())
			sum += q.guaranteed()
		}
	}
	if outer == nil {
		if processors, err := t.processors(); err == nil {
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
func (t *Table) leftBeside(p *entry) float64 {
	most, sum, promised := t.promisedBeside(p)
	switch {
	case t.outer(p.PID) == nil:
		return cpu.Left(promised, most)
	case most == 0:
		return math.MaxInt32
	}
	return max(most-sum, 0)
}

func percentText(p float64) string { return fmt.Sprint(math.Round(p*100) / 100) }

// guaranteedPercent sums the guarantees of all processes but one. A share inside another process's share is a part of
// that one, and does not count again.
func (t *Table) guaranteedPercent(but int) (sum float64) {
	for _, p := range t.list {
		if p.PID != but && t.outer(p.PID) == nil {
			sum += p.guaranteed()
		}
	}
	return sum
}

// outer returns the innermost share around a process, nil if there is none.
func (t *Table) outer(pid int) *entry {
	up := t.resolver.Ancestors(pid)
	for _, a := range up[min(1, len(up)):] {
		if p := t.list[a.PID]; p != nil && identity.SameStart(p.StartNS, a.StartBoottimeNS) {
			return p
		}
	}
	return nil
}

// List returns all shares, and the sum of what is guaranteed.
func (t *Table) List() api.PowerList {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := api.PowerList{Version: api.Version, Time: time.Now()}
	if processors, err := t.processors(); err == nil {
		list.CapacityPercent = processors.CapacityPercent()
	}
	list.GuaranteedPercent = t.guaranteedPercent(0)
	list.Powers = t.renderAll()
	return list
}

// PowerOf returns the power in force of a process that started at startNS, 0 if it has no share.
func (t *Table) PowerOf(pid int, startNS uint64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.list[pid]; p != nil && identity.SameStart(p.StartNS, startNS) {
		return p.power()
	}
	return 0
}

// Shown returns all shares, by pid.
func (t *Table) Shown() []api.Power {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renderAll()
}

func (t *Table) renderAll() []api.Power {
	list := []api.Power{}
	for _, p := range t.list {
		list = append(list, t.render(p))
	}
	slices.SortFunc(list, func(a, b api.Power) int { return cmp.Compare(a.PID, b.PID) })
	return list
}

func (t *Table) render(p *entry) api.Power {
	ceiling, _ := p.holding()
	share := p.share()
	a := api.Power{
		PID: p.PID, Name: t.programOf(p), UID: p.UID, Since: p.Since,
		Power: p.power(), Guaranteed: p.guaranteed() > 0,
		PeriodNS: share.PeriodNS, SliceNS: share.SliceNS, Reserved: p.reserved(),
		SlotNS: ceiling.SlotNS, Strict: ceiling.Strict, Deadline: p.Was != nil,
		Auto:    p.Wishes[enforce.OwnerAdmin].Auto.api(p.seen.short),
		Percent: p.percent, Group: cmp.Or(p.Group.Unit, p.Group.Dir),
	}
	if t.found != nil && p.Group.Dir != "" {
		a.Processes = len(t.found.Members(p.Group))
	}
	if admin := p.Wishes[enforce.OwnerAdmin]; admin.Extra {
		a.Extra, a.SliceNS, a.PeriodNS = true, admin.SliceNS, admin.PeriodNS
	}
	if p.noDeadline != nil {
		a.NoDeadline = p.noDeadline.Error()
	}
	for owner := range p.Wishes {
		if p.Wishes[owner] != (wish{}) {
			a.Owners = append(a.Owners, identity.OwnerName(enforce.Owner(owner), p.UserUID))
		}
	}
	return a
}

// processors returns the machine's mechanism for CPU shares. The first call finds it.
func (t *Table) processors() (Processors, error) {
	if t.found == nil {
		found, err := t.open(t.resolver.Systemd())
		if err != nil {
			return nil, err
		}
		t.found = found
	}
	return t.found, nil
}

// failure tells a process that ended meanwhile from a fault.
func failure(pid int, err error) error {
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
func autoWarnings(p *entry) []string {
	if a := p.Wishes[enforce.OwnerAdmin].Auto; a.RateBytesPerSec != 0 && a.PercentPerMbit == 0 {
		return []string{"what it needs is measured as soon as it sends; until then that is a guess"}
	}
	return nil
}

// administrator is the actor in whose name the table corrects reservations.
var administrator = auth.Actor{UID: 0}
