package statefile

import (
	"io/fs"
	"os"
	"sync"
)

// writtenFiles remembers the files that are always written whole, as they were written or read last. So a file that
// somebody else removes or replaces is written again.
type writtenFiles struct {
	mu    sync.Mutex
	files map[string]fs.FileInfo // by path
}

// note remembers a file that was read.
func (w *writtenFiles) note(path string) {
	if info, err := os.Lstat(path); err == nil {
		w.put(path, info)
	}
}

func (w *writtenFiles) put(path string, info fs.FileInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files == nil {
		w.files = map[string]fs.FileInfo{}
	}
	w.files[path] = info
}

// forget notes that the file no longer exists.
func (w *writtenFiles) forget(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, path)
}

// lost reports whether somebody has removed or changed a file since it was remembered.
func (w *writtenFiles) lost(path string) bool {
	w.mu.Lock()
	was := w.files[path]
	w.mu.Unlock()
	if was == nil {
		return false
	}
	now, err := os.Lstat(path)
	return err != nil || !os.SameFile(was, now) || was.Size() != now.Size() || !was.ModTime().Equal(now.ModTime())
}
