package account

import (
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// mostFile bounds the bytes that are read of a file: some 400,000 users.
const mostFile = 32 << 20

// file is /etc/passwd or /etc/group. It is read again when it has changed.
type file[V any] struct {
	path  string
	parse func(line string) (v V, ok bool)
	key   func(V) (name string, id uint32)

	mu    sync.Mutex
	info  fs.FileInfo // properties of the file when it was read, nil = it was not
	names map[string]V
	ids   map[uint32]V
	list  []V
}

// fresh reads the file if it has changed. The caller holds f.mu.
func (f *file[V]) fresh() {
	info, err := os.Stat(f.path)
	if err == nil && f.info != nil && os.SameFile(info, f.info) && info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime()) {
		return
	}
	if err != nil && f.info == nil && f.names != nil {
		return // it is still missing
	}
	f.info, f.names, f.ids, f.list = nil, map[string]V{}, map[uint32]V{}, nil
	from, err := os.Open(f.path)
	if err != nil {
		return // such a machine has no accounts in files
	}
	defer from.Close()
	if info, err = from.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	text, err := io.ReadAll(io.LimitReader(from, mostFile))
	if err != nil {
		return
	}
	f.info = info
	for line := range strings.Lines(string(text)) {
		v, ok := f.parse(strings.TrimSpace(line))
		if !ok {
			continue
		}
		name, id := f.key(v)
		if _, twice := f.names[name]; !twice {
			f.names[name] = v
		}
		if _, twice := f.ids[id]; !twice {
			f.ids[id] = v
		}
		f.list = append(f.list, v)
	}
}

func (f *file[V]) byName(name string) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh()
	v, ok := f.names[name]
	return v, ok
}

func (f *file[V]) byID(id uint32) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh()
	v, ok := f.ids[id]
	return v, ok
}

// all returns all entries, in the file's order. The caller does not change the list.
func (f *file[V]) all() []V {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh()
	return f.list
}

// parseUser parses a line of /etc/passwd or of getent.
func parseUser(line string) (u User, ok bool) {
	const nameField, uidField, gidField, homeField, count = 0, 2, 3, 5, 7
	fields := strings.SplitN(line, ":", count)
	if len(fields) <= homeField || !readable(fields[nameField]) {
		return u, false
	}
	uid, uidErr := ParseID(fields[uidField])
	gid, gidErr := ParseID(fields[gidField])
	if uidErr != nil || gidErr != nil {
		return u, false
	}
	u = User{Name: fields[nameField], UID: uid, GID: gid}
	if home := fields[homeField]; strings.HasPrefix(home, "/") {
		u.Home = home
	}
	return u, true
}

// parseGroup parses a line of /etc/group or of getent.
func parseGroup(line string) (g Group, ok bool) {
	const nameField, gidField, membersField, count = 0, 2, 3, 4
	fields := strings.SplitN(line, ":", count)
	if len(fields) <= gidField || !readable(fields[nameField]) {
		return g, false
	}
	gid, err := ParseID(fields[gidField])
	if err != nil {
		return g, false
	}
	g = Group{Name: fields[nameField], GID: gid}
	if len(fields) > membersField {
		g.members = strings.FieldsFunc(fields[membersField], func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	}
	return g, true
}

// readable reports whether a name may be shown. A name that begins with + or - in a file means NIS.
func readable(name string) bool {
	if name == "" || strings.ContainsRune("+-#", rune(name[0])) || !utf8.ValidString(name) {
		return false
	}
	return strings.IndexFunc(name, unicode.IsControl) < 0
}
