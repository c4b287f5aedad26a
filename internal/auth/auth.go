// Package auth identifies callers by the credentials that the kernel keeps for the other end of a unix socket. It holds
// the one table of their rights. It never looks a subject up and never changes anything.
package auth

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/shell"
)

// ErrDenied says that the caller may not perform the requested action.
var ErrDenied = errors.New("permission denied")

// Actor is a caller: the credentials that their process had when it connected.
type Actor struct {
	UID, GID uint32
	PID      int
	Admin    bool // a member of the administrators' group
}

// Root reports whether the caller is an administrator: root, or of their group.
func (a Actor) Root() bool { return a.UID == 0 || a.Admin }

// Owner returns the owner in whose name the caller's wishes are stored.
func (a Actor) Owner() enforce.Owner {
	if a.Root() {
		return enforce.OwnerAdmin
	}
	return enforce.OwnerUser
}

// Action is an action that a caller requests.
type Action int

// The actions.
const (
	Read         Action = iota
	Set                 // set, tighten or lift a wish of their own
	Remove              // lift every wish of their own
	LiftOthers          // lift another's wish
	Scope               // move a process into a cgroup of its own
	RaiseWeight         // above the default
	Guarantee           // a least rate, to which others give way; or to grant that
	TestRules           // see which rules match a process
	Measure             // see the limits that hold up a process's connections
	ReadRules           // see the rules of a user's own file, and have it read again
	Power               // set, change or lift a process's CPU share
	ReservePower        // guarantee that share
	SmoothPower         // say how that share is kept: slots, a deadline
	Adapt               // have a limit to a host follow the path
	Configure           // change settings of the whole machine
	SeePeers            // see the destination of a limit
	Down                // lift everything and stop
)

// Target is the object of the action.
type Target struct {
	Subject api.Subject
	Kind    enforce.Kind
	// UID owns the target: the process's real user, the user themselves, the user who requested the scope that the
	// cgroup is, or the owner of the wish or file; 0 for all else.
	UID uint32
	// Wish is the requested wish; it is used for the remedy only.
	Wish api.Wish
	// Command, for powers, is the command line by which the administrator performs the action.
	Command string
}

// Who returns the callers who may perform an action.
type Who int

// Administrators may do everything.
const (
	Administrators Who = iota
	Owners             // and the owner of the target
	Everybody
)

func (w Who) String() string {
	return [...]string{"administrators", "administrators, and whose it is", "everybody"}[w]
}

// Right is one line of the table of rights.
type Right struct {
	What string // for people
	Acts []Action
	Kind enforce.Kind // kind of the target; 0 = any, or none
	Who  Who
}

// Table returns the table of rights: it decides, and netnice(7) has it. The first line that names the action and the
// kind counts. An action in no line is for administrators only.
func Table() []Right {
	wish := []Action{Set, Remove}
	return []Right{
		{"see the limits, the daemon and the administrator's rules", []Action{Read}, 0, Everybody},
		{"see the destination of a limit (--to, rules) that one has set, or that is on one's own traffic", []Action{SeePeers}, 0, Owners},
		{"set, change and lift a wish of one's own on a process", wish, enforce.KindTree, Owners},
		{"the same on a user", wish, enforce.KindUser, Owners},
		{"the same on a cgroup that --scope made", wish, enforce.KindCgroup, Owners},
		{"the same on the host, a network device, and any other cgroup, unit or container", wish, enforce.KindHost, Administrators},
		{"move a process into a cgroup of its own (--scope)", []Action{Scope}, enforce.KindTree, Owners},
		{"give it a share of the processors, at most, and lift it (netnice power)", []Action{Power}, enforce.KindTree, Owners},
		{"guarantee that share (the administrator's netnice power, --cpu-slice)", []Action{ReservePower}, 0, Administrators},
		{"say how that share is kept (netnice power --slots, --strict)", []Action{SmoothPower}, 0, Administrators},
		{"see which rules match a process", []Action{TestRules}, enforce.KindTree, Owners},
		{"measure which limit binds its connections (netnice why)", []Action{Measure}, enforce.KindTree, Owners},
		{"see a user's own rules, and have them read again", []Action{ReadRules}, 0, Owners},
		{"raise a weight above 100", []Action{RaiseWeight}, 0, Administrators},
		{"guarantee a rate (--min, --min-down), reserve more of a link's time than was granted, and grant (--grant)", []Action{Guarantee}, 0, Administrators},
		{"have what is sent to a host follow what the path carries (netnice adapt)", []Action{Adapt}, 0, Administrators},
		{"switch the input meter of the whole machine (netnice system)", []Action{Configure}, 0, Administrators},
		{"lift a wish of somebody else's", []Action{LiftOthers}, 0, Administrators},
		{"lift everything (netnice down)", []Action{Down}, 0, Administrators},
	}
}

// May reports whether the table allows an action.
func May(a Actor, act Action, t Target) bool { return a.Root() || may(a, act, t) }

// Check consults the table. The error is an *api.Error with the code denied. Its hint is the command by which the
// administrator performs the action.
func Check(a Actor, act Action, t Target) error {
	if May(a, act, t) {
		return nil
	}
	switch act {
	case Down:
		return Denied("only the administrator may lift all limits", "sudo netnice down")
	case Configure:
		return Denied("only the administrator may set what holds for the whole machine", "sudo netnice system --input-meter=off")
	case RaiseWeight:
		return Denied("only the administrator may raise a weight above 100", Command(Set, t.Subject, t.Wish))
	case Guarantee:
		return Denied("only the administrator may guarantee a rate, to which others give way", Command(Set, t.Subject, t.Wish))
	case ReservePower:
		return Denied("only the administrator may reserve the processors' time", t.command("sudo netnice reserve --pid "+t.Subject.ID+" --cpu-period 20ms --cpu-slice 5ms")+"; a ceiling is yours to set: netnice power "+t.Subject.ID+" 25")
	case SmoothPower:
		return Denied("only the administrator may have slots or deadlines, which every processor pays for", t.command("sudo netnice power "+t.Subject.ID+" 25 --slots 1ms")+"; a ceiling is yours to set: netnice power "+t.Subject.ID+" 25")
	case Adapt:
		return Denied("only the administrator may have limits follow a path: it is probed, and everybody's traffic held", "sudo netnice adapt "+shell.Word(t.Subject.ID))
	case Power:
		return Denied(reason(t), t.command("sudo netnice power "+t.Subject.ID+" 25"))
	case LiftOthers:
		return Denied(fmt.Sprintf("the limit on %s was set by somebody else", t.Subject), t.command(Command(Remove, t.Subject, api.Wish{})))
	case Measure:
		return Denied(fmt.Sprintf("process %s belongs to another user, whose connections are theirs", t.Subject.ID), "sudo netnice why "+t.Subject.ID)
	case TestRules:
		return Denied(fmt.Sprintf("process %s belongs to another user, whose rules are theirs", t.Subject.ID), "sudo netnice rules test "+t.Subject.ID)
	}
	return Denied(reason(t), Command(act, t.Subject, t.Wish))
}

// command returns the target's own command line, or else the usual one.
func (t Target) command(usual string) string { return cmp.Or(t.Command, usual) }

func may(a Actor, act Action, t Target) bool {
	for _, r := range Table() {
		if slices.Contains(r.Acts, act) && (r.Kind == 0 || r.Kind == t.Kind) {
			return r.Who == Everybody || r.Who == Owners && t.UID == a.UID
		}
	}
	return false
}

func reason(t Target) string {
	switch t.Kind {
	case enforce.KindTree:
		return fmt.Sprintf("process %s belongs to another user", t.Subject.ID)
	case enforce.KindUser:
		return fmt.Sprintf("only %s and the administrator may limit the user %s", t.Subject.ID, t.Subject.ID)
	}
	return fmt.Sprintf("only the administrator may limit %s", t.Subject)
}

// Denied returns the answer to a caller without the right; hint is a command.
func Denied(message, hint string) error {
	return &api.Error{Code: api.CodeDenied, Message: message, Hint: hint, Cause: ErrDenied}
}

// Command returns the command line by which the administrator performs act.
func Command(act Action, s api.Subject, w api.Wish) string {
	verb := "set"
	switch {
	case act == Remove:
		verb = "unset"
	case w.Reserve != nil:
		verb = "reserve"
	}
	words := []string{"sudo netnice", verb, "--" + string(s.Kind)}
	if w.Line != nil {
		words = []string{"sudo netnice link"}
	}
	if s.ID != "" {
		words = append(words, shell.Word(s.ID))
	}
	if act == Remove {
		return strings.Join(words, " ")
	}
	for _, r := range limit.Rates {
		if rate := r.Asked(&w); rate != nil {
			words = append(words, "--"+r.Name, RateText(*rate))
		}
	}
	if r := w.Reserve; r != nil {
		words = append(words, "--link", r.Link, "--period", time.Duration(r.PeriodNS).String(), "--slice", time.Duration(r.SliceNS).String())
		if r.Extra {
			words = append(words, "--extra")
		}
	}
	if l := w.Line; l != nil {
		words = append(words, "--overhead", fmt.Sprint(l.OverheadBytes), "--mpu", fmt.Sprint(l.LeastBytes))
		if l.ATM {
			words = append(words, "--atm")
		}
	}
	if w.DSCP != nil {
		words = append(words, "--dscp", strconv.Itoa(*w.DSCP))
	}
	if w.Weight != nil {
		words = append(words, "--weight", fmt.Sprint(*w.Weight))
	}
	return strings.Join(words, " ")
}

// RateText formats a rate in bytes/s in a form that the command line accepts.
func RateText(rate uint64) string {
	switch {
	case rate == 0:
		return "0"
	case rate%1e9 == 0:
		return fmt.Sprintf("%dGB/s", rate/1e9)
	case rate%1e6 == 0:
		return fmt.Sprintf("%dMB/s", rate/1e6)
	case rate%1e3 == 0:
		return fmt.Sprintf("%dkB/s", rate/1e3)
	}
	return fmt.Sprintf("%dB/s", rate)
}
