package account

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soon = 5 * time.Second
	poll = time.Millisecond
)

// directory is a machine whose getent is a script. The script notes its arguments in a file.
type directory struct {
	*Directory
	dir string
}

func newDirectory(t *testing.T, script string, change ...func(*Options)) directory {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	o := Options{
		Passwd: write("passwd", "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n", 0o644),
		Group:  write("group", "root:x:0:\nann:x:1000:\nwheel:x:10:root,ann\nstaff:x:20:bob\n", 0o644),
		Getent: []string{filepath.Join(dir, "missing"), write("getent", "#!/bin/sh\nprintf '%s\\n' \"$*\" >>"+dir+"/asked\n"+script, 0o755)},
		Limit:  soon,
	}
	for _, f := range change {
		f(&o)
	}
	return directory{Directory: New(o), dir: dir}
}

// asked returns the arguments of all calls of the command.
func (d directory) asked() []string {
	text, _ := os.ReadFile(filepath.Join(d.dir, "asked"))
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// ofTheNet answers as a directory of two users, a group and memberships does.
const ofTheNet = `
case "$*" in
"passwd bob"|"passwd 70001") echo "bob:*:70001:70000:Bob:/home/bob:/bin/bash" ;;
"passwd CORP\eve") printf '%s\n' 'CORP\eve:*:70002:70000::relative:' ;;
"group eves") printf '%s\n' 'eves:*:70009:CORP\eve' ;;
"initgroups bob") echo "bob                   70000 70009 20" ;;
"initgroups ann") echo "ann                   10 70009" ;;
"passwd garbled") echo "bob:*:-1:0" ;;
"passwd 70003") echo "bob:*:70001:70000:Bob:/home/bob:/bin/bash" ;;
"passwd broken") exit 3 ;;
*) exit 2 ;;
esac
`

// The files answer without a process, and the command answers for other accounts.
func TestDirectory(t *testing.T) {
	d, ctx := newDirectory(t, ofTheNet), t.Context()
	ann, err := d.User(ctx, "ann")
	require.NoError(t, err)
	require.Equal(t, User{Name: "ann", UID: 1000, GID: 1000, Home: "/home/ann"}, ann)
	byNumber, err := d.UserOf(ctx, 1000)
	require.NoError(t, err)
	require.Equal(t, ann, byNumber)
	wheel, err := d.GID(ctx, "wheel")
	require.NoError(t, err)
	require.EqualValues(t, 10, wheel)
	require.NoFileExists(t, filepath.Join(d.dir, "asked"))

	bob, err := d.User(ctx, "bob")
	require.NoError(t, err)
	require.Equal(t, User{Name: "bob", UID: 70001, GID: 70000, Home: "/home/bob"}, bob)
	byNumber, err = d.UserOf(ctx, 70001)
	require.NoError(t, err)
	require.Equal(t, bob, byNumber)
	require.Equal(t, []string{"passwd bob"}, d.asked(), "one answer to both questions")
	eve, err := d.User(ctx, `CORP\eve`)
	require.NoError(t, err)
	require.Equal(t, User{Name: `CORP\eve`, UID: 70002, GID: 70000}, eve, "a home that is no path is none")
	eves, err := d.Group(ctx, "eves")
	require.NoError(t, err)
	require.Equal(t, Group{Name: "eves", GID: 70009}, eves)
	require.Equal(t, map[uint32]string{1000: "/home/ann", 70001: "/home/bob"}, d.Homes())
}

func TestDirectoryGroups(t *testing.T) {
	d, ctx := newDirectory(t, ofTheNet), t.Context()
	for name, want := range map[string][]uint32{"bob": {20, 70000, 70009}, "ann": {10, 70009}, "root": {10}} {
		list, err := d.Groups(ctx, User{Name: name})
		require.NoError(t, err)
		require.Equal(t, want, list, name)
	}
	d = newDirectory(t, "exit 3")
	list, err := d.Groups(ctx, User{Name: "ann"})
	require.NoError(t, err, "the files are enough for their users")
	require.Equal(t, []uint32{10}, list)
	_, err = d.Groups(ctx, User{Name: "bob"})
	require.ErrorIs(t, err, ErrUnanswered)
}

func TestDirectoryOfNobody(t *testing.T) {
	d, ctx := newDirectory(t, ofTheNet), t.Context()
	for name, want := range map[string]error{
		"nobody-at-all": ErrUnknown, "garbled": ErrUnanswered, "broken": ErrUnanswered,
	} {
		_, err := d.User(ctx, name)
		require.ErrorIs(t, err, want, name)
	}
	_, err := d.UserOf(ctx, 70003)
	require.ErrorIs(t, err, ErrUnanswered, "another's entry is no answer")
	_, err = d.UserOf(ctx, 70004)
	require.EqualError(t, err, "no user has the number 70004")
	_, err = d.Group(ctx, "nobodies")
	require.EqualError(t, err, `no group is called "nobodies"`)
	none := New(Options{Passwd: d.opts.Passwd, Group: d.opts.Group, Getent: []string{filepath.Join(d.dir, "missing")}})
	_, err = none.User(ctx, "bob")
	require.ErrorIs(t, err, ErrUnknown, "a machine without the command has the users of its files")
}

// Numbers are parsed as such, up to the one that means no user; they start no process.
func TestNumbers(t *testing.T) {
	d, ctx := newDirectory(t, ofTheNet), t.Context()
	for text, want := range map[string]uint32{"0": 0, "70005": 70005, "0070005": 70005, "4294967294": MaxID} {
		for _, find := range []func(string) (uint32, error){
			func(s string) (uint32, error) { return d.UID(ctx, s) },
			func(s string) (uint32, error) { return d.GID(ctx, s) }, d.UIDSoon, d.GIDSoon,
		} {
			id, err := find(text)
			require.NoError(t, err, text)
			require.Equal(t, want, id, text)
		}
	}
	for _, text := range []string{"-1", "4294967295", "4294967296", "99999999999999999999", "+5", " 5", "0x5", "5_0", ""} {
		_, err := d.UID(ctx, text)
		require.ErrorIs(t, err, ErrUnknown, text)
		_, err = d.GID(ctx, text)
		require.ErrorIs(t, err, ErrUnknown, text)
		_, err = ParseID(text)
		require.Error(t, err, text)
	}
	_, err := d.UserOf(ctx, MaxID+1)
	require.ErrorIs(t, err, ErrUnknown)
	require.Subset(t, []string{"", "passwd 0x5", "group 0x5", "passwd 5_0", "group 5_0"}, d.asked(), "numbers are no names")
}

// A name that could be a flag, or has bytes that no name has, reaches no command.
func TestNamesThatAreNotAsked(t *testing.T) {
	d, ctx := newDirectory(t, "echo x:x:1:1::/:"), t.Context()
	for _, name := range []string{
		"", "-s", "--help", "+bob", ".bob", "bob smith", "bob\n", "bob\x00", "bob:x", "bob;id", "$(id)", "b/../ob", "*", "bob\xff", strings.Repeat("b", 257),
	} {
		_, err := d.User(ctx, name)
		require.ErrorIs(t, err, ErrUnknown, "%q", name)
		_, err = d.Group(ctx, name)
		require.ErrorIs(t, err, ErrUnknown, "%q", name)
		_, err = d.Groups(ctx, User{Name: name})
		require.NoError(t, err, "%q", name)
		_, err = d.UIDSoon(name)
		require.ErrorIs(t, err, ErrUnknown, "%q", name)
	}
	require.NoFileExists(t, filepath.Join(d.dir, "asked"))
	for _, name := range []string{"bob", "_apt", "bob.smith", "host$", `CORP\bob`, "bob@corp.example", "jörg", "7of9", "a-b"} {
		require.True(t, question{passwd, name}.askable(), name)
	}
}

// A command that hangs is given up after the limit, once for all callers, and left alone for a while.
func TestDirectoryThatHangs(t *testing.T) {
	d := newDirectory(t, "exec sleep 60", func(o *Options) { o.Limit = 500 * time.Millisecond })
	began := time.Now()
	answers := make(chan error, 10)
	for range cap(answers) {
		go func() {
			_, err := d.User(t.Context(), "bob")
			answers <- err
		}()
	}
	for range cap(answers) {
		require.ErrorIs(t, <-answers, ErrUnanswered)
	}
	require.Less(t, time.Since(began), soon)
	require.Equal(t, []string{"passwd bob"}, d.asked())
	_, err := d.User(t.Context(), "bob")
	require.ErrorIs(t, err, ErrUnanswered)
	require.Equal(t, []string{"passwd bob"}, d.asked(), "not at once again")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.User(ctx, "eve")
	require.ErrorIs(t, err, context.Canceled, "who asks may go")
}

func TestDirectoryThatTalksTooMuch(t *testing.T) {
	d := newDirectory(t, "exec yes bob:x:1:1::/:")
	_, err := d.User(t.Context(), "bob")
	require.ErrorIs(t, err, ErrUnanswered)
}

// Answers count for a while, also the answer that there is no such account; the clock is the test's.
func TestAnswersGrowOld(t *testing.T) {
	d, ctx := newDirectory(t, ofTheNet), t.Context()
	now := time.Now()
	d.now = func() time.Time { return now }
	ask := func(name string) int {
		_, _ = d.User(ctx, name)
		return len(d.asked())
	}
	require.Equal(t, 1, ask("bob"))
	require.Equal(t, 2, ask("eve"))
	now = now.Add(9 * time.Second)
	require.Equal(t, 2, ask("bob"))
	require.Equal(t, 2, ask("eve"))
	now = now.Add(2 * time.Second)
	require.Equal(t, 2, ask("bob"))
	require.Equal(t, 3, ask("eve"))
	now = now.Add(time.Minute)
	require.Equal(t, 4, ask("bob"))
}

// A caller that may start no process gets the stored answer, also an old one.
func TestWithoutAsking(t *testing.T) {
	d := newDirectory(t, ofTheNet)
	now := time.Now()
	d.now = func() time.Time { return now }
	frugal := WithoutAsking(t.Context())
	_, err := d.User(frugal, "bob")
	require.ErrorIs(t, err, ErrUnknown)
	_, err = d.UserOf(frugal, 70001)
	require.ErrorIs(t, err, ErrUnknown)
	_, err = d.Group(frugal, "eves")
	require.ErrorIs(t, err, ErrUnknown)
	require.NoFileExists(t, filepath.Join(d.dir, "asked"))
	want, err := d.User(t.Context(), "bob")
	require.NoError(t, err)
	now = now.Add(time.Hour)
	got, err := d.User(frugal, "bob")
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []string{"passwd bob"}, d.asked())
}

// A caller that must not wait gets the answer at a later call, and an old one until there is a newer.
func TestCallersThatDoNotWait(t *testing.T) {
	d := newDirectory(t, ofTheNet)
	var mu sync.Mutex
	later := time.Duration(0)
	d.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(later)
	}
	_, ok := d.Known(70001)
	require.False(t, ok)
	require.Eventually(t, func() bool { u, ok := d.Known(70001); return ok && u.Name == "bob" }, soon, poll)
	uid, err := d.UIDSoon("bob")
	require.NoError(t, err, "one answer to both questions")
	require.EqualValues(t, 70001, uid)
	_, err = d.UIDSoon("eve")
	require.ErrorIs(t, err, ErrPending)
	require.Eventually(t, func() bool {
		_, err := d.UIDSoon("eve")
		return err != nil && !strings.Contains(err.Error(), ErrPending.Error())
	}, soon, poll)
	_, err = d.UIDSoon("eve")
	require.ErrorIs(t, err, ErrUnknown)
	_, err = d.GIDSoon("eves")
	require.ErrorIs(t, err, ErrPending)
	require.Eventually(t, func() bool { gid, err := d.GIDSoon("eves"); return err == nil && gid == 70009 }, soon, poll)

	before := len(d.asked())
	mu.Lock()
	later = time.Hour
	mu.Unlock()
	u, ok := d.Known(70001)
	require.True(t, ok, "an old name is better than none")
	require.Equal(t, "bob", u.Name)
	require.Eventually(t, func() bool { return len(d.asked()) > before }, soon, poll, "and looked up again")
}

// A caller that waits gets its answer, however many numbers without a user are shown: each kind of question waits only
// behind its own.
func TestStrangersDelayNobody(t *testing.T) {
	d := newDirectory(t, `case "$*" in
"passwd bob") echo "bob:*:70001:70000:Bob:/home/bob:/bin/bash" ;;
*) exec sleep 60 ;;
esac
`, func(o *Options) { o.Limit = 2 * time.Second })
	for uid := range uint32(10_000) {
		_, ok := d.Known(100_000 + uid)
		require.False(t, ok)
	}
	d.mu.Lock()
	questions, _ := laneBounds()
	require.Equal(t, [lanes]int{shown: questions[shown]}, d.flying)
	d.mu.Unlock()
	u, err := d.User(t.Context(), "bob")
	require.NoError(t, err)
	require.Equal(t, "bob", u.Name)
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.flying == [lanes]int{}
	}, 2*soon, poll, "all are given up")
	require.LessOrEqual(t, len(d.asked()), 4, "one process at a time; what waited behind it was not asked")
}

// The stored answers are bounded, and the answers that were unused for the longest go first.
func TestKeptAnswersAreBounded(t *testing.T) {
	d := New(Options{Getent: []string{"/nonexistent"}})
	now := time.Now()
	d.now = func() time.Time { return now }
	for i := range mostKept {
		now = now.Add(time.Millisecond)
		d.keep(flightKey{question{group, fmt.Sprint("g", i)}, awaited}, answer{group: Group{Name: "g"}})
	}
	_, found, _ := d.recall(question{group, "g0"})
	require.True(t, found)
	now = now.Add(time.Millisecond)
	d.keep(flightKey{question{group, "one more"}, awaited}, answer{group: Group{Name: "g"}})
	require.Len(t, d.kept, mostKept)
	_, found, _ = d.recall(question{group, "g0"})
	require.True(t, found, "it was asked for")
	_, found, _ = d.recall(question{group, "g1"})
	require.False(t, found)
}

// A changed file is read again, also one that appears or goes.
func TestFilesChange(t *testing.T) {
	d := newDirectory(t, "exit 2")
	_, err := d.User(t.Context(), "new")
	require.ErrorIs(t, err, ErrUnknown)
	require.NoError(t, os.WriteFile(d.opts.Passwd+".new", []byte("new:x:1001:1001::/home/new:/bin/sh\n"), 0o644))
	require.NoError(t, os.Rename(d.opts.Passwd+".new", d.opts.Passwd))
	u, err := d.User(t.Context(), "new")
	require.NoError(t, err)
	require.EqualValues(t, 1001, u.UID)
	require.False(t, d.InFiles("ann"))
	require.NoError(t, os.Remove(d.opts.Passwd))
	require.False(t, d.InFiles("new"))
	require.NoError(t, os.WriteFile(d.opts.Passwd, []byte("old:x:1002:1002::/home/old:/bin/sh\n"), 0o644))
	require.True(t, d.InFiles("old"))
}

// The first of two lines with the same name or number counts; malformed lines are left out.
func TestFilesAreReadAsLoginDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte("root:x:0:0:root:/root:/bin/sh\nbob:x:1000:1000::/home/bob:/bin/sh\n+nis\n-eve:x:1:1:::\n# x\nx:x:no:1::/x:/y\n"+
		"minus:x:4294967295:1::/m:/y\ntwice:x:1000:1000::/elsewhere:/bin/sh\nno:x:5:5:::\nbob:x:1001:1001::/two:\n"), 0o600))
	d := New(Options{Passwd: path, Getent: []string{"/nonexistent"}})
	require.Equal(t, map[uint32]string{1000: "/home/bob", 1001: "/two"}, d.Homes())
	require.Equal(t, []string{"bob", "no", "root", "twice"}, d.Names())
	u, err := d.User(t.Context(), "bob")
	require.NoError(t, err)
	require.EqualValues(t, 1000, u.UID)
	u, err = d.UserOf(t.Context(), 1000)
	require.NoError(t, err)
	require.Equal(t, "bob", u.Name)
	for _, name := range []string{"minus", "x", "-eve", "+nis"} {
		require.False(t, d.InFiles(name), name)
	}
}

// Any output of a command gives an answer to the question that can be shown, or none.
func FuzzParseAnswer(f *testing.F) {
	for _, line := range []string{
		"bob:*:70001:70000:Bob:/home/bob:/bin/bash\n", "bob:*:4294967295:0::/:", "::::::", "bob:x:1:2:3:relative", "staff:*:70000:bob,eve",
		"bob                   4 24 27", "bob", "", "\n", "b\x1bob:x:1:1::/:", "bob:x:1", "bob -1", "bob 4294967295",
	} {
		f.Add("bob", []byte(line))
		f.Add("70001", []byte(line))
	}
	f.Fuzz(func(t *testing.T, key string, text []byte) {
		for _, database := range []string{passwd, group, initgroups} {
			a := parseAnswer(question{database, key}, text)
			if a.err != nil {
				if a.user != (User{}) || a.group.Name != "" || a.groups != nil {
					t.Fatalf("%s: an error and an answer: %+v", database, a)
				}
				continue
			}
			name := a.user.Name + a.group.Name
			if database != initgroups && (name == "" || strings.ContainsAny(name, ":\n\x00\x1b")) {
				t.Fatalf("%s: the name %q", database, name)
			}
			if a.user.UID > MaxID || a.user.GID > MaxID || a.group.GID > MaxID || isNumber(key) && database == passwd && decimal(a.user.UID) != key {
				t.Fatalf("%s %s: %+v", database, key, a)
			}
			if a.user.Home != "" && a.user.Home[0] != '/' {
				t.Fatalf("the home %q", a.user.Home)
			}
			for _, gid := range a.groups {
				if gid > MaxID {
					t.Fatalf("the group %d", gid)
				}
			}
		}
	})
}
