// Package statefile keeps files in the state folder. It reads only files that nobody but root could have written,
// replaces a file as a whole, keeps damaged files under another name, and knows which files could not be written or
// were changed by somebody else. It does not know what the files are for. It logs faults, and returns them as values.
package statefile

import (
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

// Options are what a folder needs.
type Options struct {
	Dir string
	// Names are the files of the folder that may be damaged.
	Names []string
	Log   *slog.Logger
	// Remedy says what helps if a file cannot be written, "" = unknown.
	Remedy func(error) string
	// Fault makes writing or removing a file fail, for tests. The parameter takesNoRoom is true where the file is
	// removed, or overwritten in place.
	Fault func(path string, takesNoRoom bool) error
}

// Folder is the state folder of a running daemon. Its methods may be called concurrently, but only one caller at a time
// may write or remove a file: the holder of the lock of its content.
type Folder struct {
	dir    string
	names  []string
	log    *slog.Logger
	remedy func(error) string
	fault  func(path string, takesNoRoom bool) error

	unwritten unwritten
	written   writtenFiles

	mu      sync.Mutex
	damaged map[string]*Damage // by path
}

// New returns a folder. It touches no file.
func New(o Options) *Folder {
	f := &Folder{dir: o.Dir, names: o.Names, log: o.Log, remedy: o.Remedy, fault: o.Fault, damaged: map[string]*Damage{}}
	if f.remedy == nil {
		f.remedy = func(error) string { return "" }
	}
	return f
}

// Dir returns the path of the folder.
func (f *Folder) Dir() string { return f.dir }

// Path returns the path of a file.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }

// Fault returns the error that a test injects.
func (f *Folder) Fault(path string, takesNoRoom bool) error {
	if f.fault == nil {
		return nil
	}
	return f.fault(path, takesNoRoom)
}

// Wrote stores the result of writing or removing a file, and logs a change of it.
func (f *Folder) Wrote(path string, err error) {
	if !f.unwritten.note(path, err, time.Now()) {
		return
	}
	if err == nil {
		f.log.Info("the state is written again", "file", path)
		return
	}
	f.log.Warn("the state could not be written; the desired state holds all the same, and it is tried again", "file", path, "err", err, "remedy", f.remedy(err))
}

// Unwritten returns the error of the last attempt to write or remove a file, nil if there was none.
func (f *Folder) Unwritten(path string) error { return f.unwritten.of(path) }

// AllUnwritten returns the files that cannot be written, by path.
func (f *Folder) AllUnwritten() map[string]Unwritten { return f.unwritten.all() }

// Failures returns the number of failed attempts since the folder was opened.
func (f *Folder) Failures() uint64 { return f.unwritten.count() }

// IsWorthTrying reports whether a change should try to write the file: many changes in a row do not each try.
func (f *Folder) IsWorthTrying(path string) bool { return f.unwritten.worth(path, time.Now()) }

// IsDue reports whether a file may be written now: the last attempt succeeded, or a new one is due.
func (f *Folder) IsDue(path string) bool {
	return f.unwritten.of(path) == nil || f.unwritten.due(path, time.Now())
}

// TryNow makes new attempts for all failed files due.
func (f *Folder) TryNow() { f.unwritten.tryNow() }

// IsBehind reports whether a file has to be written again. It could not be written and a new attempt is due, or
// somebody else has removed or changed it.
func (f *Folder) IsBehind(path string) bool {
	if f.unwritten.of(path) != nil {
		return f.unwritten.due(path, time.Now())
	}
	return f.written.lost(path)
}

// WriteIfBehind writes a file again that is behind. The caller holds the lock of its content.
func (f *Folder) WriteIfBehind(path string, save func()) {
	if !f.IsBehind(path) {
		return
	}
	if f.unwritten.of(path) == nil {
		f.log.Warn("somebody else has removed or changed a file of the state; it is written anew", "file", path)
	}
	save()
}

// Noted remembers a file that was read, so that IsBehind notices when somebody changes it.
func (f *Folder) Noted(path string) { f.written.note(path) }
