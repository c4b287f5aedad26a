// Package account finds users and groups by name and by number, as the machine's name service switch (nsswitch.conf(5))
// has them. It reads /etc/passwd and /etc/group itself. For other accounts it asks getent(1): netnice is linked without
// the C library, whose modules know LDAP, SSSD and systemd-homed. The package keeps answers for a while, and decides
// nothing about rights.
package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

var (
	// ErrUnknown says that there is no such user or group.
	ErrUnknown = errors.New("no such account")
	// ErrUnanswered says that the name service gave no answer in time, or none that can be parsed.
	ErrUnanswered = errors.New("the name service does not answer")
	// ErrPending says that a look-up has begun, and that its answer is available at a later call.
	ErrPending = errors.New("a look-up is under way")
)

// MaxID is the highest number of a user or group: the next number is -1, which means no user to the kernel.
const MaxID = 1<<32 - 2

// User is one of the machine's users.
type User struct {
	Name     string
	UID, GID uint32
	Home     string // "" if it is no absolute path
}

// Group is one of the machine's groups.
type Group struct {
	Name string
	GID  uint32

	members []string
}

// Options configure a Directory; zero values have defaults.
type Options struct {
	Passwd string   // default /etc/passwd
	Group  string   // default /etc/group
	Getent []string // absolute paths of getent, of which the first that exists is run; empty = a fixed list
	// Limit bounds the duration of a look-up, with all its waiting; default 2 s.
	Limit time.Duration
	// Fresh is the time for which an answer counts, FreshUnknown the same for an unknown account; default 60 s and 10
	// s.
	Fresh, FreshUnknown time.Duration
}

// Directory is a machine's users and groups. It is safe for concurrent use.
type Directory struct {
	opts   Options
	users  *file[User]
	groups *file[Group]
	slots  [lanes]chan struct{} // slots for processes that run at a time
	now    func() time.Time

	mu      sync.Mutex // guards the fields below; it is never held while a file is read or a process runs
	kept    map[question]*entry
	flights map[flightKey]*flight
	flying  [lanes]int // number of flights
}

// New returns a Directory. It reads nothing yet.
func New(o Options) *Directory {
	if o.Passwd == "" {
		o.Passwd = "/etc/passwd"
	}
	if o.Group == "" {
		o.Group = "/etc/group"
	}
	if len(o.Getent) == 0 {
		o.Getent = []string{"/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"}
	}
	span := func(to *time.Duration, usual time.Duration) {
		if *to <= 0 {
			*to = usual
		}
	}
	span(&o.Limit, 2*time.Second)
	span(&o.Fresh, time.Minute)
	span(&o.FreshUnknown, 10*time.Second)
	d := &Directory{
		opts: o, now: time.Now,
		users:   &file[User]{path: o.Passwd, parse: parseUser, key: func(u User) (string, uint32) { return u.Name, u.UID }},
		groups:  &file[Group]{path: o.Group, parse: parseGroup, key: func(g Group) (string, uint32) { return g.Name, g.GID }},
		kept:    make(map[question]*entry),
		flights: make(map[flightKey]*flight),
	}
	_, processes := laneBounds()
	for l := range d.slots {
		d.slots[l] = make(chan struct{}, processes[l])
	}
	return d
}

var machine = sync.OnceValue(func() *Directory { return New(Options{}) })

// Machine returns the Directory of the running machine. There is one, so that all parts of a process share its answers.
func Machine() *Directory { return machine() }

type withoutAsking struct{}

// WithoutAsking returns a context for callers whose questions may not start a process: the files and the stored answers
// are their only sources.
func WithoutAsking(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutAsking{}, true)
}

func mayAsk(ctx context.Context) bool { return ctx.Value(withoutAsking{}) == nil }

// ParseID parses the number of a user or group, 0 to MaxID.
func ParseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id > MaxID {
		return 0, fmt.Errorf("%q is no number of a user or group: 0 to %d", text, uint32(MaxID))
	}
	return uint32(id), nil
}

// User finds a user by name. It may wait.
func (d *Directory) User(ctx context.Context, name string) (User, error) {
	if u, ok := d.users.byName(name); ok {
		return u, nil
	}
	if isNumber(name) { // getent would look for that number
		return User{}, unknown(question{passwd, name})
	}
	a, err := d.ask(ctx, question{passwd, name})
	return a.user, err
}

// UserOf finds a user by number. It may wait.
func (d *Directory) UserOf(ctx context.Context, uid uint32) (User, error) {
	if u, ok := d.users.byID(uid); ok {
		return u, nil
	}
	a, err := d.ask(ctx, question{passwd, decimal(uid)})
	return a.user, err
}

// UID finds a user's number by name, or parses the number of a user who may have no name. It may wait.
func (d *Directory) UID(ctx context.Context, text string) (uint32, error) {
	u, err := d.User(ctx, text)
	return orNumber(text, u.UID, err)
}

// Group finds a group by name. It may wait.
func (d *Directory) Group(ctx context.Context, name string) (Group, error) {
	if g, ok := d.groups.byName(name); ok {
		return g, nil
	}
	a, err := d.ask(ctx, question{group, name})
	return a.group, err
}

// GID finds a group's number by name, or parses a number. It may wait.
func (d *Directory) GID(ctx context.Context, text string) (uint32, error) {
	g, err := d.Group(ctx, text)
	return orNumber(text, g.GID, err)
}

// orNumber parses a text as a number where no account has it as a name.
func orNumber(text string, id uint32, err error) (uint32, error) {
	if !errors.Is(err, ErrUnknown) {
		return id, err
	}
	if number, parseErr := ParseID(text); parseErr == nil {
		return number, nil
	}
	return 0, err
}

// InFiles reports whether the files have a user of that name.
func (d *Directory) InFiles(name string) bool {
	_, ok := d.users.byName(name)
	return ok
}

// Groups returns the numbers of a user's supplementary groups, sorted. It may wait. Where the name service does not
// answer, it returns the groups in the files for a user in the files.
func (d *Directory) Groups(ctx context.Context, u User) ([]uint32, error) {
	var list []uint32
	for _, g := range d.groups.all() {
		if slices.Contains(g.members, u.Name) {
			list = append(list, g.GID)
		}
	}
	a, err := d.ask(ctx, question{initgroups, u.Name})
	if err != nil && !d.InFiles(u.Name) && !errors.Is(err, ErrUnknown) {
		return nil, err
	}
	list = append(list, a.groups...)
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Known returns the user of a number as far as that is known, and never waits. For a user outside the files it starts a
// look-up, and a later call has the answer.
func (d *Directory) Known(uid uint32) (User, bool) {
	if u, ok := d.users.byID(uid); ok {
		return u, true
	}
	q := question{passwd, decimal(uid)}
	if !q.askable() {
		return User{}, false
	}
	a, found, fresh := d.recall(q)
	if !fresh {
		d.begin(flightKey{q, shown})
	}
	return a.user, found
}

// UIDSoon is UID for callers that must not wait: ErrPending says that a later call has the answer.
func (d *Directory) UIDSoon(text string) (uint32, error) {
	if u, ok := d.users.byName(text); ok {
		return u.UID, nil
	}
	a, err := d.soon(question{passwd, text})
	return orNumber(text, a.user.UID, err)
}

// GIDSoon is GID for callers that must not wait, as UIDSoon.
func (d *Directory) GIDSoon(text string) (uint32, error) {
	if g, ok := d.groups.byName(text); ok {
		return g.GID, nil
	}
	a, err := d.soon(question{group, text})
	return orNumber(text, a.group.GID, err)
}

// soon returns the stored answer for a name, and starts a look-up if that is too old.
func (d *Directory) soon(q question) (answer, error) {
	if isNumber(q.key) || !q.askable() {
		return answer{}, unknown(q)
	}
	a, found, fresh := d.recall(q)
	if !fresh {
		d.begin(flightKey{q, listed})
	}
	switch {
	case found:
		return a, nil
	case fresh:
		return a, a.err
	}
	return answer{}, fmt.Errorf("%w: %q", ErrPending, q.key)
}

// Names returns the names of the users in the files, sorted.
func (d *Directory) Names() []string {
	var names []string
	for _, u := range d.users.all() {
		names = append(names, u.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Homes returns the home folders of all users but root, both of users in the files and of users that were looked up.
func (d *Directory) Homes() map[uint32]string {
	homes := make(map[uint32]string)
	add := func(u User) {
		if _, twice := homes[u.UID]; u.UID != 0 && u.Home != "" && !twice {
			homes[u.UID] = u.Home
		}
	}
	for _, u := range d.users.all() {
		add(u)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for q, e := range d.kept {
		if q.database == passwd && e.found() {
			add(e.answer.user)
		}
	}
	return homes
}

func decimal(id uint32) string { return strconv.FormatUint(uint64(id), 10) }
