package statefile

import (
	"maps"
	"sync"
	"time"
)

const (
	// writeAgainFirst is the delay before the first new attempt. The delay then doubles, up to writeAgainMost.
	writeAgainFirst = time.Second
	writeAgainMost  = time.Minute
)

// Unwritten is a file that could not be written or removed.
type Unwritten struct {
	Err   error
	Since time.Time
	last  time.Time // time of the last attempt
	wait  time.Duration
}

// unwritten holds the files that could not be written or removed.
type unwritten struct {
	mu       sync.Mutex
	files    map[string]Unwritten // by path
	failures uint64
}

// note stores the result of an attempt; news reports whether it differs from the last result.
func (u *unwritten) note(path string, err error, now time.Time) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f, failed := u.files[path]
	if err == nil {
		delete(u.files, path)
		return failed
	}
	u.failures++
	if !failed {
		f = Unwritten{Since: now, wait: writeAgainFirst / 2}
		if u.files == nil {
			u.files = map[string]Unwritten{}
		}
	}
	news = f.Err == nil || f.Err.Error() != err.Error()
	f.Err, f.last, f.wait = err, now, min(2*f.wait, writeAgainMost)
	u.files[path] = f
	return news
}

// tryNow schedules a new attempt for all failed files at the next tick.
func (u *unwritten) tryNow() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for path, f := range u.files {
		f.last = time.Time{}
		u.files[path] = f
	}
}

// worth reports whether a change should try to write the file: many changes in a row do not each try.
func (u *unwritten) worth(path string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	f, failed := u.files[path]
	return !failed || now.Sub(f.last) >= writeAgainFirst
}

// due reports whether it is time for a new attempt on a file that could not be written.
func (u *unwritten) due(path string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	f, failed := u.files[path]
	return failed && now.Sub(f.last) >= f.wait
}

// of returns the error of the last attempt on a file, nil if there was none.
func (u *unwritten) of(path string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.files[path].Err
}

// all returns the files that cannot be written, by path.
func (u *unwritten) all() map[string]Unwritten {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.files)
}

// count returns the number of failures so far.
func (u *unwritten) count() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failures
}
