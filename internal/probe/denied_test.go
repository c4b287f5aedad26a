package probe

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// The error that sums up the attempts also reports a refusal by the kernel. Silence alone is no refusal.
func TestUnreachableDenied(t *testing.T) {
	denied := &UnreachableError{"192.0.2.7", []Attempt{{UDP, ErrSilent}, {Timestamp, &deniedError{syscall.EPERM}}, {Echo, &deniedError{syscall.EPERM}}}}
	for _, want := range []error{ErrSilent, ErrDenied, syscall.EPERM} {
		if !errors.Is(denied, want) {
			t.Errorf("%v is not %v", denied, want)
		}
	}
	for _, attempts := range [][]Attempt{
		{{UDP, ErrSilent}},
		{{UDP, ErrSilent}, {Timestamp, &deniedError{syscall.EPERM}}, {Echo, ErrSilent}},
	} {
		silent := &UnreachableError{"192.0.2.7", attempts}
		if !errors.Is(silent, ErrSilent) || errors.Is(silent, ErrDenied) {
			t.Errorf("%v: silence is not told from a refusal", silent)
		}
		if !strings.Contains(silent.Hint(), "--reflect") {
			t.Errorf("%v: hint %q", silent, silent.Hint())
		}
	}
}
