package vm

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// archive writes a cpio archive in the "newc" format, which the kernel unpacks as its first file system. It makes
// parent folders as needed.
type archive struct {
	w     io.Writer
	inode uint32
	dirs  map[string]bool
	err   error // the first error; everything after it does nothing
}

func newArchive(w io.Writer) *archive {
	return &archive{w: w, dirs: map[string]bool{"": true}}
}

const (
	modeDir     = 0o040000
	modeFile    = 0o100000
	modeSymlink = 0o120000
	modeChar    = 0o020000
)

// header writes an entry's header and name. size is the number of bytes that
// the caller writes next.
func (a *archive) header(name string, mode uint32, size int64, major, minor uint32) {
	if a.err != nil {
		return
	}
	a.inode++
	// magic, inode, mode, uid, gid, links, mtime, size, dev major and minor,
	// rdev major and minor, name length with its NUL, checksum
	text := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	a.write([]byte(text))
	a.pad(int64(len(text)))
}

func (a *archive) write(data []byte) {
	if a.err != nil {
		return
	}
	if _, err := a.w.Write(data); err != nil {
		a.err = fmt.Errorf("write initramfs: %w", err)
	}
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad(written int64) {
	if rest := written % 4; rest != 0 {
		a.write(make([]byte, 4-rest))
	}
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (a *archive) dir(name string) {
	name = clean(name)
	if a.dirs[name] {
		return
	}
	a.parents(name)
	a.dirs[name] = true
	a.header(name, modeDir|0o755, 0, 0, 0)
}

func (a *archive) parents(name string) {
	if parent := path.Dir(name); parent != "." {
		a.dir(parent)
	}
}

func (a *archive) data(name string, perm os.FileMode, data []byte) {
	name = clean(name)
	a.parents(name)
	a.header(name, modeFile|uint32(perm.Perm()), int64(len(data)), 0, 0)
	a.write(data)
	a.pad(int64(len(data)))
}

func (a *archive) symlink(name, target string) {
	name = clean(name)
	a.parents(name)
	a.header(name, modeSymlink|0o777, int64(len(target)), 0, 0)
	a.write([]byte(target))
	a.pad(int64(len(target)))
}

func (a *archive) char(name string, perm os.FileMode, major, minor uint32) {
	name = clean(name)
	a.parents(name)
	a.header(name, modeChar|uint32(perm.Perm()), 0, major, minor)
}

// file copies a host file, following symbolic links.
func (a *archive) file(name, host string) {
	if a.err != nil {
		return
	}
	f, err := os.Open(host)
	if err != nil {
		a.err = fmt.Errorf("add to initramfs: %w", err)
		return
	}
	defer f.Close() //nolint:errcheck // opened for reading
	info, err := f.Stat()
	if err != nil {
		a.err = fmt.Errorf("add to initramfs: %w", err)
		return
	}
	if !info.Mode().IsRegular() {
		a.err = fmt.Errorf("add %s to initramfs: not a regular file", host)
		return
	}
	name = clean(name)
	a.parents(name)
	a.header(name, modeFile|uint32(info.Mode().Perm()), info.Size(), 0, 0)
	if a.err != nil {
		return
	}
	if n, err := io.Copy(a.w, f); err != nil || n != info.Size() {
		a.err = fmt.Errorf("add %s to initramfs: copied %d of %d bytes: %w", host, n, info.Size(), err)
		return
	}
	a.pad(info.Size())
}

// tree copies a host file or folder.
func (a *archive) tree(name, host string) {
	if a.err != nil {
		return
	}
	info, err := os.Stat(host)
	if err != nil {
		a.err = fmt.Errorf("add to initramfs: %w", err)
		return
	}
	if !info.IsDir() {
		a.file(name, host)
		return
	}
	a.dir(name)
	entries, err := os.ReadDir(host)
	if err != nil {
		a.err = fmt.Errorf("add to initramfs: %w", err)
		return
	}
	for _, e := range entries {
		a.tree(path.Join(name, e.Name()), filepath.Join(host, e.Name()))
	}
}

// close ends the archive and returns the first error.
func (a *archive) close() error {
	a.header("TRAILER!!!", 0, 0, 0, 0)
	a.write(make([]byte, 512))
	return a.err
}
