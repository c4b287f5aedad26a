package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/statefile"
)

// SpareLines is the number of outdated lines that may exist beside twice the number of valid ones.
const SpareLines = 256

// Content is what the file has to hold.
type Content struct {
	NextID  uint32
	Count   int
	Records iter.Seq[Record] // Count of them
}

// FileOptions are what a file needs.
type FileOptions struct {
	Folder  *statefile.Folder
	BootID  string
	Content func() Content
	Log     *slog.Logger
}

// File is the state file of a running daemon. Its caller holds the lock of the content.
type File struct {
	folder  *statefile.Folder
	path    string
	boot    string
	content func() Content
	log     *slog.Logger

	last   written
	behind bool // the file lacks a change
}

// written is the file as it was written last.
type written struct {
	info    fs.FileInfo // nil: not written yet, or not as it should be
	size    int64
	heading heading
	sum     uint32 // the checksum of all records
}

// NewFile returns a file that is not written yet.
func NewFile(o FileOptions) *File {
	return &File{folder: o.Folder, path: o.Folder.Path(FileName), boot: o.BootID, content: o.Content, log: o.Log}
}

// Path returns the file's path.
func (f *File) Path() string { return f.path }

// Outdate notes a change that SaveIfDue writes.
func (f *File) Outdate() { f.behind = true }

// Forget notes that the file was removed.
func (f *File) Forget() { f.last = written{} }

// SaveIfDue writes the file if it is behind, unless a recent attempt has failed. With look it first looks whether
// somebody else has removed or changed the file.
func (f *File) SaveIfDue(look bool) {
	if look && f.lost() {
		f.log.Warn("somebody else has removed or changed the state; it is written anew", "file", f.path)
		f.behind = true
	}
	if f.behind && f.folder.IsDue(f.path) {
		_ = f.Save() // a failure is noted, and tried again
	}
}

// Save writes the file whole; afterwards it is complete, or unchanged. A failure is noted, and SaveIfDue tries again.
func (f *File) Save() error {
	err := f.saveWhole()
	if f.behind = err != nil; f.behind {
		f.markBehind()
	}
	f.folder.Wrote(f.path, err)
	return err
}

// markBehind marks the file, where possible, as lacking a part of the desired state: the next daemon of this boot then
// adopts the limits in force. Overwriting the heading takes no room on a full disk.
func (f *File) markBehind() {
	on, err := os.OpenFile(f.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // the disk may be read-only
	}
	defer on.Close()
	const most = 512 // of a heading
	text := make([]byte, most)
	n, _ := on.ReadAt(text, 0)
	line, _, ended := bytes.Cut(text[:n], []byte("\n"))
	var h heading
	if !ended || statefile.Strictly(line, &h) != nil || h.Version < summedVersion || h.BootID != f.boot || h.Records == behind {
		return
	}
	h.Records = behind
	if marked := h.line(); len(marked) == len(line)+1 && f.folder.Fault(f.path, true) == nil {
		_, _ = on.WriteAt(marked, 0) // the failure to write the state was published already
	}
}

func (f *File) saveWhole() error {
	f.last = written{}
	text, next, err := whole(f.boot, f.content())
	if err != nil {
		return err
	}
	if err := f.folder.KeepDamaged(f.path); err != nil {
		return err
	}
	info, err := f.folder.Replace(f.path, text)
	if err != nil {
		return err
	}
	next.info, next.size = info, info.Size()
	f.last = next
	return nil
}

// Text returns the file as Save writes it.
func Text(bootID string, all Content) ([]byte, error) {
	text, _, err := whole(bootID, all)
	return text, err
}

func whole(bootID string, all Content) ([]byte, written, error) {
	next := written{heading: heading{
		Version: Version, BootID: bootID, NextID: all.NextID, Nodes: all.Count, Records: all.Count, Synced: all.Count,
	}}
	var text bytes.Buffer
	text.Write(next.heading.line())
	for r := range all.Records {
		if err := next.add(&text, Change{Node: &r}); err != nil {
			return nil, next, err
		}
	}
	return text.Bytes(), next, nil
}

// Append appends changes to the file. It writes the whole file where that fails or the file has grown too long. The
// content has the changes already. A lasting change must survive a power cut.
func (f *File) Append(lasting bool, changes ...Change) error {
	all := f.content()
	switch {
	case len(changes) == 0:
		return nil
	case !f.folder.IsWorthTrying(f.path):
		f.behind = true
		return f.folder.Unwritten(f.path)
	case f.behind || f.last.info == nil || f.last.heading.Records+len(changes) > 2*all.Count+SpareLines:
		return f.Save()
	}
	next := f.last
	var text bytes.Buffer
	for _, c := range changes {
		c.NextID = all.NextID
		if err := next.add(&text, c); err != nil {
			return err
		}
	}
	next.heading.Records += len(changes)
	if lasting {
		next.heading.Synced = next.heading.Records
	}
	if f.folder.Fault(f.path, false) != nil || next.append(f.path, text.Bytes(), lasting) != nil {
		return f.Save() // reports what is wrong, if anything is
	}
	f.last = next
	return nil
}

// add appends a change's line to a text: the checksum of all changes up to it, and the change.
func (w *written) add(text *bytes.Buffer, c Change) error {
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	w.sum = crc32.Update(w.sum, summed, line)
	fmt.Fprintf(text, "%0*x %s\n", sumDigits, w.sum, line)
	return nil
}

// append appends to the file at path if that is the file that was written last. A failure leaves it unchanged. A
// lasting change must survive a power cut: the heading counts it as synced only after it has reached the disk.
func (w *written) append(path string, text []byte, lasting bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !w.is(info) {
		return errors.New("somebody else changed it")
	}
	_, err = f.WriteAt(text, w.size)
	if err == nil && lasting {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err == nil {
		_, err = f.WriteAt(w.heading.line(), 0)
	}
	if err != nil {
		return errors.Join(err, f.Truncate(w.size))
	}
	w.size += int64(len(text))
	return nil
}

// is reports whether info describes the file as it was written last.
func (w *written) is(info fs.FileInfo) bool {
	return w.info != nil && os.SameFile(info, w.info) && info.Size() == w.size
}

// lost reports whether somebody has removed or changed the file since it was written.
func (f *File) lost() bool {
	if f.last.info == nil {
		return false // it has to be written anyway
	}
	info, err := os.Lstat(f.path)
	return err != nil || !f.last.is(info)
}

// Check says why the next daemon would not use the state in a folder as it is, nil if it would. It changes nothing. It
// tries again after a failure, because a running daemon may be writing the file just then.
func Check(dir, boot string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = statefile.TrustFolder(dir, info)
	}
	if err != nil {
		return err
	}
	for range 3 {
		var s *State
		s, err = Load(dir, boot)
		if err == nil && (s == nil || s.Damage == nil) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s is damaged: %w", filepath.Join(dir, FileName), s.Damage)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
