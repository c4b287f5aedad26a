package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

// save writes the file; it is there whole, or as it was before. A failure is noted, and the file
// written later. The caller holds d.mu.
func (d *Daemon) save() error {
	err := d.saveWhole()
	if d.dirty = err != nil; d.dirty {
		d.markBehind()
	}
	d.wrote(d.statePath(), err)
	return err
}

// markBehind has the file say, where that can be, that it has not all that is wanted: the next daemon of
// this boot then goes by what is in force. To write over the heading takes no room on a full disk.
func (d *Daemon) markBehind() {
	path := d.statePath()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // of a disk that is read-only, for instance
	}
	defer f.Close()
	const most = 512 // of a heading
	text := make([]byte, most)
	n, _ := f.ReadAt(text, 0)
	line, _, ended := bytes.Cut(text[:n], []byte("\n"))
	var h heading
	if !ended || strictly(line, &h) != nil || h.Version < summedVersion || h.BootID != d.boot || h.Records == behind {
		return
	}
	h.Records = behind
	if marked := h.line(); len(marked) == len(line)+1 && d.cannot(path, true) == nil {
		_, _ = f.WriteAt(marked, 0) // what is lost was told as the state was not written
	}
}

func (d *Daemon) saveWhole() error {
	d.file = stateFile{}
	next := stateFile{heading: heading{
		Version: stateVersion, BootID: d.boot, NextID: d.nextID,
		Nodes: len(d.nodes), Records: len(d.nodes), Synced: len(d.nodes),
	}}
	var text bytes.Buffer
	text.Write(next.heading.line())
	for _, n := range d.sorted() {
		if err := next.addRecord(&text, n.change()); err != nil {
			return err
		}
	}
	path := d.statePath()
	if err := d.keepDamaged(); err != nil {
		return err
	}
	info, err := d.replace(path, text.Bytes())
	if err != nil {
		return err
	}
	next.info, next.size = info, info.Size()
	d.file = next
	return nil
}

// saveChange adds changes to the file, or writes it whole where that cannot be
// done or it has grown too long. The caller holds d.mu.
func (d *Daemon) saveChange(lasting bool, changes ...record) error {
	path := d.statePath()
	switch {
	case len(changes) == 0:
		return nil
	case !d.unwritten.worth(path, time.Now()):
		d.dirty = true
		return d.unwritten.of(path)
	case d.dirty || d.file.info == nil || d.file.heading.Records+len(changes) > 2*len(d.nodes)+spare:
		return d.save()
	}
	next := d.file
	var text bytes.Buffer
	for _, r := range changes {
		r.NextID = d.nextID
		if err := next.addRecord(&text, r); err != nil {
			return err
		}
	}
	next.heading.Records += len(changes)
	if lasting {
		next.heading.Synced = next.heading.Records
	}
	if d.cannot(path, false) != nil || next.append(path, text.Bytes(), lasting) != nil {
		return d.save() // says what is wrong, if anything is
	}
	d.file = next
	return nil
}

// writeChange is saveChange for what holds in the kernel by now: whether it can be written down,
// too, is for unwrittenWarnings to tell.
func (d *Daemon) writeChange(lasting bool, changes ...record) { _ = d.saveChange(lasting, changes...) }

// addRecord writes a record's line into a text: the checksum of all records up to it, and
// the record.
func (s *stateFile) addRecord(text *bytes.Buffer, r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	s.sum = crc32.Update(s.sum, summed, line)
	fmt.Fprintf(text, "%0*x %s\n", sumDigits, s.sum, line)
	return nil
}

// append appends to the file at path if it is the one that was written last; a
// failure leaves it as it was. Lasting is what must survive a power cut: the heading says that the
// disk has it only when it has.
func (s *stateFile) append(path string, text []byte, lasting bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !s.is(info) {
		return errors.New("somebody else changed it")
	}
	_, err = f.WriteAt(text, s.size)
	if err == nil && lasting {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err == nil {
		_, err = f.WriteAt(s.heading.line(), 0)
	}
	if err != nil {
		return errors.Join(err, f.Truncate(s.size))
	}
	s.size += int64(len(text))
	return nil
}

// is reports whether that is the file as it was written last.
func (s *stateFile) is(info fs.FileInfo) bool {
	return s.info != nil && os.SameFile(info, s.info) && info.Size() == s.size
}

// lost reports whether somebody has removed or changed the file since it was written. The caller
// holds d.mu.
func (d *Daemon) lost() bool {
	if d.file.info == nil {
		return false // it is behind anyway
	}
	info, err := os.Lstat(d.statePath())
	return err != nil || !d.file.is(info)
}

// replace puts a file in the place of another: whole, and on the disk when it returns, or not at
// all. The information is that of the new file, whatever is in its place by now.
func (d *Daemon) replace(path string, text []byte) (fs.FileInfo, error) {
	if err := d.cannot(path, false); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600), renameio.WithExistingPermissions(), renameio.WithTempDir(dir))
	if err != nil {
		return nil, err
	}
	defer f.Cleanup() //nolint:errcheck // nothing is left to clean up when the file has its name
	if _, err := f.Write(text); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return nil, err
	}
	return info, syncFolder(dir)
}

// remove removes a file of the state that may not be there.
func (d *Daemon) remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		d.onDisk.forget(path)
		return nil
	}
	if err := d.cannot(path, true); err != nil {
		return err
	}
	err := removeFile(path)
	if err == nil {
		d.onDisk.forget(path)
	}
	return err
}

// cannot is why tests have a file not be written, or removed or written over in place, which takes no room.
func (d *Daemon) cannot(path string, takesNoRoom bool) error {
	if d.opts.fault == nil {
		return nil
	}
	return d.opts.fault(path, takesNoRoom)
}

// removeFile removes a file that may not be there. It looks first: a file system that is read-only
// refuses also what is not there.
func removeFile(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeUnfinished removes what a daemon was writing when it was killed. What stays does no harm.
func removeUnfinished(dir string) {
	for _, name := range stateFiles {
		found, _ := filepath.Glob(filepath.Join(dir, "."+name+"[0-9]*")) // the pattern is a good one
		for _, path := range found {
			_ = os.Remove(path)
		}
	}
}

// limitFiles go with the last limit, and stateFiles, among them what is set for the whole machine, with netnice down.
var (
	limitFiles = []string{stateName, powerName, adaptName}
	stateFiles = []string{stateName, powerName, adaptName, systemName}
)

// forget removes what is written down. The caller holds d.mu.
func (d *Daemon) forget(names ...string) error {
	d.file = stateFile{}
	return forgetFiles(d.opts.StateDir, names, d.remove)
}

// ForgetState removes what a daemon has written down, where none runs; of which processes have powers may stay.
func ForgetState(dir string, keepPowers bool) error {
	names := slices.Clone(stateFiles)
	if keepPowers {
		names = slices.DeleteFunc(names, func(name string) bool { return name == powerName })
	}
	names = append(names, listsFolder)
	return forgetFiles(dir, names, func(path string) error {
		if filepath.Base(path) == listsFolder {
			return os.RemoveAll(path)
		}
		return removeFile(path)
	})
}

func forgetFiles(dir string, names []string, remove func(path string) error) error {
	var left []string
	var failed error
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := remove(path); err != nil {
			left, failed = append(left, path), err
		}
	}
	if failed == nil {
		return nil
	}
	files := strings.Join(left, " ")
	hint := "sudo rm " + files
	if first := diskHint(dir, failed); first != "" {
		hint = first + "; then: " + hint
	}
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("all limits are lifted, but what was wanted cannot be removed from the disk, and the next daemon would set it again: %v", failed),
		Hint:    hint,
		Cause:   failed,
	}
}

// diskHint says what to do about a folder where nothing can be written, "" = nobody knows.
func diskHint(dir string, err error) string {
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
