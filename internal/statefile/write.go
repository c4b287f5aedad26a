package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Replace replaces a file: the new one is complete, and on the disk when the call returns, or the old one stays. The
// returned information is that of the new file, even if another file has replaced it since.
func (f *Folder) Replace(path string, text []byte) (fs.FileInfo, error) {
	if err := f.Fault(path, false); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	next, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600), renameio.WithExistingPermissions(), renameio.WithTempDir(dir))
	if err != nil {
		return nil, err
	}
	defer next.Cleanup() //nolint:errcheck // nothing is left to clean up when the file has its name
	if _, err := next.Write(text); err != nil {
		return nil, err
	}
	info, err := next.Stat()
	if err != nil {
		return nil, err
	}
	if err := next.CloseAtomicallyReplace(); err != nil {
		return nil, err
	}
	return info, syncFolder(dir)
}

// Rewrite is Replace for a file that is always written whole: it remembers the file, so that IsBehind notices when
// somebody changes it. It makes the folder of a file that is in a folder of its own.
func (f *Folder) Rewrite(path string, text []byte) error {
	if own := filepath.Dir(path); own != filepath.Clean(f.dir) {
		if err := f.Fault(path, false); err != nil {
			return err
		}
		if err := os.Mkdir(own, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	info, err := f.Replace(path, text)
	if err == nil {
		f.written.put(path, info)
	}
	return err
}

// Remove removes a file, which may be missing.
func (f *Folder) Remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		f.written.forget(path)
		return nil
	}
	if err := f.Fault(path, true); err != nil {
		return err
	}
	err := RemoveFile(path)
	if err == nil {
		f.written.forget(path)
	}
	return err
}

// Drop is Remove for a file that nobody needs any more: a failure to write it is forgotten.
func (f *Folder) Drop(path string) error {
	_ = f.unwritten.note(path, nil, time.Now())
	return f.Remove(path)
}

// RemoveFile removes a file that may be missing. It looks first: a read-only file system refuses to remove even a
// missing file.
func RemoveFile(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveUnfinished removes the unfinished files of a daemon that was killed. A file that cannot be removed does no
// harm.
func RemoveUnfinished(dir string, names []string) {
	for _, name := range names {
		found, _ := filepath.Glob(filepath.Join(dir, "."+name+"[0-9]*")) // the pattern is valid
		for _, path := range found {
			_ = os.Remove(path)
		}
	}
}

// DiskRemedy returns a remedy for a folder where nothing can be written, "" = none is known.
func DiskRemedy(dir string, err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "make room: df " + dir
	case errors.Is(err, unix.EROFS):
		return "mount it for writing: findmnt -T " + dir
	}
	return ""
}

// syncFolder makes a new name in a folder survive a power cut.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
