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
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/cpushare"
)

// save writes the file; afterwards it is complete, or unchanged. A failure is noted, and the file is written later. The
// caller holds d.mu.
func (d *Daemon) save() error {
	err := d.saveWhole()
	if d.dirty = err != nil; d.dirty {
		d.markBehind()
	}
	d.wrote(d.statePath(), err)
	return err
}

// markBehind marks the file, where possible, as lacking a part of the desired state: the next daemon of this boot then
// adopts the limits in force. Overwriting the heading takes no room on a full disk.
func (d *Daemon) markBehind() {
	path := d.statePath()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // the disk may be read-only
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
		_, _ = f.WriteAt(marked, 0) // the failure to write the state was published already
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

// saveChange appends changes to the file. It writes the whole file where that fails or the file has grown too long. The
// caller holds d.mu.
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
		return d.save() // reports what is wrong, if anything is
	}
	d.file = next
	return nil
}

// writeChange is saveChange for a change that is in force in the kernel already. unwrittenWarnings reports a failure to
// write it.
func (d *Daemon) writeChange(lasting bool, changes ...record) { _ = d.saveChange(lasting, changes...) }

// addRecord appends a record's line to a text: the checksum of all records up to it, and the record.
func (s *stateFile) addRecord(text *bytes.Buffer, r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	s.sum = crc32.Update(s.sum, summed, line)
	fmt.Fprintf(text, "%0*x %s\n", sumDigits, s.sum, line)
	return nil
}

// append appends to the file at path if that is the file that was written last. A failure leaves it unchanged. A
// lasting change must survive a power cut: the heading counts it as synced only after it has reached the disk.
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

// is reports whether info describes the file as it was written last.
func (s *stateFile) is(info fs.FileInfo) bool {
	return s.info != nil && os.SameFile(info, s.info) && info.Size() == s.size
}

// lost reports whether somebody has removed or changed the file since it was written. The caller holds d.mu.
func (d *Daemon) lost() bool {
	if d.file.info == nil {
		return false // it has to be written anyway
	}
	info, err := os.Lstat(d.statePath())
	return err != nil || !d.file.is(info)
}

// replace replaces a file: the new one is complete, and on the disk when the call returns, or the old one stays. The
// returned information is that of the new file, even if another file has replaced it since.
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

// remove removes a file of the state, which may be missing.
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

// cannot returns the error that a test injects. The parameter takesNoRoom is true where the file is removed, or
// overwritten in place.
func (d *Daemon) cannot(path string, takesNoRoom bool) error {
	if d.opts.fault == nil {
		return nil
	}
	return d.opts.fault(path, takesNoRoom)
}

// removeFile removes a file that may be missing. It looks first: a read-only file system refuses to remove even a
// missing file.
func removeFile(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeUnfinished removes the unfinished files of a daemon that was killed. A file that cannot be removed does no
// harm.
func removeUnfinished(dir string) {
	for _, name := range stateFiles {
		found, _ := filepath.Glob(filepath.Join(dir, "."+name+"[0-9]*")) // the pattern is valid
		for _, path := range found {
			_ = os.Remove(path)
		}
	}
}

// limitFiles are removed with the last limit. stateFiles, which include the settings for the whole machine, are removed
// by netnice down.
var (
	limitFiles = []string{stateName, cpushare.FileName, adaptation.FileName}
	stateFiles = []string{stateName, cpushare.FileName, adaptation.FileName, systemName}
)

// forget removes files of the state. The caller holds d.mu.
func (d *Daemon) forget(names ...string) error {
	d.file = stateFile{}
	return forgetFiles(d.opts.StateDir, names, d.remove)
}

// ForgetState removes the state of a daemon where none runs. With keepPowers the file of CPU shares stays.
func ForgetState(dir string, keepPowers bool) error {
	names := slices.Clone(stateFiles)
	if keepPowers {
		names = slices.DeleteFunc(names, func(name string) bool { return name == cpushare.FileName })
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

// diskHint returns a remedy for a folder where nothing can be written, "" = none is known.
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
