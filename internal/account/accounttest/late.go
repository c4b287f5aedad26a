package accounttest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/account"
)

// Late is a machine without accounts in its files, and with a name service that comes up late. It also has a clock that
// tests put forward.
type Late struct {
	Accounts *account.Directory

	t       testing.TB
	dir     string
	forward atomic.Int64 // ns
}

// NewLate returns a machine whose name service knows nobody until it is up, and then the user bob and the group admins.
func NewLate(t testing.TB) *Late {
	t.Helper()
	return newLate(t, 5*time.Second, `test -e %s || exit 2
case "$2" in
bob|70001) echo "bob:*:70001:70000:Bob:/home/bob:/bin/sh" ;;
admins) echo "admins:*:70009:" ;;
*) exit 2 ;;
esac
`)
}

// Crowd is more users than a machine looks up at a time.
const Crowd = 30

// NewCrowded returns a machine whose name service hangs until it is up, and then knows the users u1, u2 and so on, with
// the numbers 70001, 70002 and so on.
func NewCrowded(t testing.TB) *Late {
	t.Helper()
	return newLate(t, 500*time.Millisecond, `test -e %s || exec sleep 60
case "$2" in
u*) echo "$2:*:$((70000 + ${2#u})):70000::/nowhere:/bin/sh" ;;
*) exit 2 ;;
esac
`)
}

// newLate returns a machine with a script as its getent. The script is given the path of a file that exists when the name
// service is up.
func newLate(t testing.TB, limit time.Duration, script string) *Late {
	t.Helper()
	l := &Late{t: t, dir: t.TempDir()}
	none, getent := filepath.Join(l.dir, "none"), filepath.Join(l.dir, "getent")
	if err := os.WriteFile(getent, fmt.Appendf(nil, "#!/bin/sh\n"+script, l.up()), 0o755); err != nil {
		t.Fatal(err)
	}
	l.Accounts = account.New(account.Options{
		Passwd: none, Group: none, Getent: []string{getent}, Limit: limit, FreshUnknown: 300 * time.Millisecond,
	})
	return l
}

func (l *Late) up() string { return filepath.Join(l.dir, "up") }

// ComeUp has the name service answer.
func (l *Late) ComeUp() {
	l.t.Helper()
	if err := os.WriteFile(l.up(), nil, 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// Now returns the time of the test's clock.
func (l *Late) Now() time.Time { return time.Now().Add(time.Duration(l.forward.Load())) }

// Forward puts the clock forward.
func (l *Late) Forward(by time.Duration) { l.forward.Add(int64(by)) }
