package rulefiles

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

// A machine has dozens of users, and hardly any of them has rules. The kernel tells the source of changes on the way to
// a user's own rules, so that it need not look at each home all the time. It is not told of changes on other machines,
// and of none where no file is watched: see homePause.

// homeWatch says whose rules may have changed. Its zero value watches nothing.
type homeWatch struct {
	mu      sync.Mutex
	file    *os.File                // of inotify(7); nil = there is none
	adds    *os.File                // the same one, for a call that may hang: close does not wait for it
	of      map[int32]watchedFolder // by inotify's number
	touched map[uint32]bool         // users on whose way something has changed
	changed chan struct{}           // receives a value when touched has a new user
	lost    time.Time               // the last loss of events that counted
}

// watchedFolder is a folder on the way to the rules of users. Only its entry next is news; "" = each entry.
type watchedFolder struct {
	users []uint32
	next  string
}

const (
	// mostWatched bounds the watched folders. Each takes some 1 kB of the kernel's memory.
	mostWatched = 4096
	// mostWatchedOfUser bounds those of one user, who may rename folders again and again.
	mostWatchedOfUser = 8
	// overflowPause is the least time between two losses of events that count: one user can cause them.
	overflowPause = 10 * time.Second
	// homeReadPause is the least time between two readings of events: a home may be a folder in which much happens.
	homeReadPause = 20 * time.Millisecond
)

const (
	onTheWay = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_ONLYDIR
	atTheEnd = onTheWay | unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_ATTRIB
)

// open begins to watch. Without inotify the source looks at homes again and again.
func (w *homeWatch) open() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch homes: %w", err)
	}
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("watch homes: %w", err)
	}
	w.file, w.adds = os.NewFile(uintptr(fd), "inotify"), os.NewFile(uintptr(second), "inotify")
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
		mask, next := uint32(atTheEnd), filepath.Base(rules.OfUser)
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

// addFolder watches one folder. The call may hang, as the file system may be that of a machine that does not answer; it
// holds no lock meanwhile. Events before the folder is noted are lost, but the look that follows sees what they tell.
func (w *homeWatch) addFolder(uid uint32, folder int, next string, mask uint32) error {
	conn, err := w.adds.SyscallConn()
	if err != nil {
		return err
	}
	var number int
	control := conn.Control(func(fd uintptr) {
		number, err = unix.InotifyAddWatch(int(fd), fmt.Sprintf("/proc/self/fd/%d", folder), mask)
	})
	if err := errors.Join(control, err); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f, known := w.of[int32(number)]
	if !known && len(w.of) >= mostWatched {
		w.remove(int32(number))
		return unix.ENOSPC
	}
	if f.next = next; !slices.Contains(f.users, uid) {
		w.makeRoom(uid)
		f.users = append(f.users, uid)
	}
	w.of[int32(number)] = f
	return nil
}

// makeRoom takes a user's folders out if there are too many: a look at the user's home adds those that still count. The
// caller holds w.mu.
func (w *homeWatch) makeRoom(uid uint32) {
	var own []int32
	for number, f := range w.of {
		if slices.Contains(f.users, uid) {
			own = append(own, number)
		}
	}
	if len(own) < mostWatchedOfUser {
		return
	}
	for _, number := range own {
		f := w.of[number]
		if f.users = slices.DeleteFunc(f.users, func(of uint32) bool { return of == uid }); len(f.users) > 0 {
			w.of[number] = f
			continue
		}
		delete(w.of, number)
		w.remove(number)
	}
	w.touched[uid] = true
}

// remove ends the watch on a folder.
func (w *homeWatch) remove(number int32) {
	if conn, err := w.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(number)) })
	}
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
		if time.Since(w.lost) < overflowPause {
			return // at the latest after watchedPause each home is looked at
		}
		w.lost = time.Now()
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

// isTouched reports whether something has changed on a user's way since the last take.
func (w *homeWatch) isTouched(uid uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.touched[uid]
}

// take is isTouched for a look that begins, which sees all changes until then.
func (w *homeWatch) take(uid uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.touched[uid]
	delete(w.touched, uid)
	return is
}

// waits reports whether a change has not been looked at yet.
func (w *homeWatch) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.touched) > 0
}
