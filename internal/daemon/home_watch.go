package daemon

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/rules"
)

// A machine has dozens of users, and hardly any of them has rules. The kernel tells the daemon of changes on the way to
// a user's own rules, so that it need not look at each home all the time. It is not told of changes on other machines,
// and of none where no file is watched: see homePause.

// homeWatch says whose rules may have changed. Its zero value watches nothing.
type homeWatch struct {
	mu      sync.Mutex
	file    *os.File                // of inotify(7); nil = there is none
	of      map[int32]watchedFolder // by inotify's number
	touched map[uint32]bool         // users on whose way something has changed
	changed chan struct{}           // receives a value when touched has a new user
}

// watchedFolder is a folder on the way to the rules of users. The next folder on the way is called next; "" means that
// the rules themselves are in the folder.
type watchedFolder struct {
	users []uint32
	next  string
}

const (
	// mostWatched bounds the watched folders. Each takes some 1 kB of the kernel's memory.
	mostWatched = 4096
	// homeReadPause is the least time between two readings of events: a home may be a folder in which much happens.
	homeReadPause = 20 * time.Millisecond
)

const (
	onTheWay = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_ONLYDIR
	atTheEnd = onTheWay | unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_ATTRIB
)

// open begins to watch. Without inotify the daemon looks at homes again and again.
func (w *homeWatch) open() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch homes: %w", err)
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	w.of, w.touched, w.changed = make(map[int32]watchedFolder), make(map[uint32]bool), make(chan struct{}, 1)
	go w.read()
	return nil
}

// close ends the watch.
func (w *homeWatch) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}

// add watches the folders on the way to a user's own rules, as far as they exist, and reports whether it watches the
// last one that does. A home that does not answer delays it.
func (w *homeWatch) add(uid uint32, home string) (watched bool) {
	if w.file == nil {
		return false
	}
	dir, err := unix.Open(home, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	way := []string{"."}
	for at := filepath.Dir(rules.OfUser); at != "."; at = filepath.Dir(at) {
		way = slices.Insert(way, 1, at)
	}
	for i, folder := range way {
		fd, err := unix.Openat2(dir, folder, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
		})
		if err != nil {
			return i > 0 && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP))
		}
		mask, next := uint32(atTheEnd), ""
		if i < len(way)-1 {
			mask, next = onTheWay, filepath.Base(way[i+1])
		}
		err = w.addFolder(uid, fd, next, mask)
		unix.Close(fd)
		if err != nil {
			return false
		}
	}
	return true
}

// administrators stands for the owner of the administrator's rules, which are in no home.
const administrators = math.MaxUint32

// addSystem watches the folders of the administrator's rules that exist.
func (w *homeWatch) addSystem(dir string) {
	if w.file == nil {
		return
	}
	for _, folder := range []string{dir, filepath.Join(dir, rules.MoreDir)} {
		fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = w.addFolder(administrators, fd, "", atTheEnd) // each tick looks at these files
		unix.Close(fd)
	}
}

func (w *homeWatch) addFolder(uid uint32, folder int, next string, mask uint32) error {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.of) >= mostWatched {
		return unix.ENOSPC
	}
	var number int
	control := conn.Control(func(fd uintptr) {
		number, err = unix.InotifyAddWatch(int(fd), fmt.Sprintf("/proc/self/fd/%d", folder), mask)
	})
	if err := errors.Join(control, err); err != nil {
		return err
	}
	f := w.of[int32(number)]
	if f.next = next; !slices.Contains(f.users, uid) {
		f.users = append(f.users, uid)
	}
	w.of[int32(number)] = f
	return nil
}

// read notes the users on whose way something changes.
func (w *homeWatch) read() {
	buf := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		before := len(w.touched)
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			name := buf[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+int(e.Len)]
			at += unix.SizeofInotifyEvent + int(e.Len)
			w.note(e, unix.ByteSliceToString(name))
		}
		more := len(w.touched) > before
		w.mu.Unlock()
		if more {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
		time.Sleep(homeReadPause)
	}
}

// note takes one event of the entry name in a folder. The caller holds w.mu.
func (w *homeWatch) note(e *unix.InotifyEvent, name string) {
	touch := func(f watchedFolder) {
		for _, uid := range f.users {
			w.touched[uid] = true
		}
	}
	f := w.of[e.Wd]
	switch {
	case e.Mask&unix.IN_Q_OVERFLOW != 0: // some events are lost
		for _, f := range w.of {
			touch(f)
		}
	case e.Mask&unix.IN_IGNORED != 0: // the folder has gone
		touch(f)
		delete(w.of, e.Wd)
	case f.next == "" || f.next == name:
		touch(f)
	}
}

// take reports whether something has changed on a user's way since the last call.
func (w *homeWatch) take(uid uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.touched[uid]
	delete(w.touched, uid)
	return is
}
