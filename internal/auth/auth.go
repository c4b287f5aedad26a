// Package auth knows who is calling, by the credentials that the kernel keeps
// for the other end of a unix socket, and holds the one table of who may do
// what. It never looks a subject up and never changes anything.
package auth

import (
	"errors"
	"fmt"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// ErrDenied says that the caller may not do what they asked for.
var ErrDenied = errors.New("permission denied")

// Actor is a caller: the credentials that their process had when it connected.
type Actor struct {
	UID, GID uint32
	PID      int
}

// Root reports whether the caller is the administrator.
func (a Actor) Root() bool { return a.UID == 0 }

// Owner says in whose name the caller's wishes are stored.
func (a Actor) Owner() enforce.Owner {
	if a.Root() {
		return enforce.OwnerAdmin
	}
	return enforce.OwnerUser
}

// Action is what a caller asks for.
type Action int

// The actions. Reading (status, list, show) is open to everybody who can open
// the socket, and so is not among them.
const (
	Set    Action = iota // set, tighten or lift a wish of their own
	Remove               // lift every wish of their own
	Scope                // move a process into a cgroup of its own
	Down                 // lift everything and stop
)

// Target is what the action is done to.
type Target struct {
	Subject api.Subject
	Kind    enforce.Kind
	// UID owns the target: the process's real user, the user themselves, or who
	// asked for the scope that the cgroup is; 0 for all else.
	UID uint32
	// Wish is what is to be set; it is used for the remedy only.
	Wish api.Wish
}

// Check consults the table:
//
//	who   set, remove                                    scope            down
//	root  everything                                     every process    yes
//	user  their own wishes, on processes of theirs, on   processes of     no
//	      themselves, on scopes that they asked for      theirs
//
// The error is an *api.Error with the code denied whose hint is the command
// that would do it.
func Check(a Actor, act Action, t Target) error {
	if a.Root() {
		return nil
	}
	own := t.UID == a.UID
	switch act {
	case Set, Remove:
		if own && (t.Kind == enforce.KindTree || t.Kind == enforce.KindUser || t.Kind == enforce.KindCgroup) {
			return nil
		}
	case Scope:
		if own && t.Kind == enforce.KindTree {
			return nil
		}
	case Down:
		return Denied("only the administrator may lift all limits", "sudo netnice down")
	}
	return Denied(reason(t), Command(act, t.Subject, t.Wish))
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

// Denied returns the answer to a caller who may not; hint is a command.
func Denied(message, hint string) error {
	return &api.Error{Code: api.CodeDenied, Message: message, Hint: hint, Cause: ErrDenied}
}

// Command returns the command line by which the administrator does what act asks.
func Command(act Action, s api.Subject, w api.Wish) string {
	verb := "set"
	if act == Remove {
		verb = "unset"
	}
	words := []string{"sudo netnice", verb, "--" + string(s.Kind)}
	if s.ID != "" {
		words = append(words, s.ID)
	}
	if act == Remove {
		return strings.Join(words, " ")
	}
	for _, d := range []struct {
		flag string
		rate *uint64
	}{{"--up", w.UpBytesPerSec}, {"--down", w.DownBytesPerSec}, {"--total", w.TotalBytesPerSec}} {
		if d.rate != nil {
			words = append(words, d.flag, rateText(*d.rate))
		}
	}
	if w.Weight != nil {
		words = append(words, "--weight", fmt.Sprint(*w.Weight))
	}
	return strings.Join(words, " ")
}

// rateText writes bytes/s as the command line reads them.
func rateText(rate uint64) string {
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
