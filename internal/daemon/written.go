package daemon

import (
	"io/fs"
	"os"
	"sync"
)

// writtenFiles remembers the files beside that of the limits as this daemon wrote or read them last, so that one that
// somebody else removes or replaces is written anew.
type writtenFiles struct {
	mu    sync.Mutex
	files map[string]fs.FileInfo // by path
}

// note remembers a file as it is now, or that there is none.
func (w *writtenFiles) note(path string) {
	info, err := os.Lstat(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		delete(w.files, path)
		return
	}
	if w.files == nil {
		w.files = map[string]fs.FileInfo{}
	}
	w.files[path] = info
}

// lost reports whether somebody has removed or changed a file since then.
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
