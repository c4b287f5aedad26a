package background

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// MostLogBytes is the size at which a file of the log is put aside. There are two files at most.
const MostLogBytes = 1 << 20

// Log is the file to which a detached daemon writes its log. A full file is renamed to FILE.1, replaces the
// former file of that name, and a new file begins.
type Log struct {
	path string
	most int64
	onto []int // file descriptors that always are the present file, for output that does not go through the log

	mu   sync.Mutex
	file *os.File
	size int64
}

// OpenLog opens the log at path. The file descriptors in onto always are the present file.
func OpenLog(path string, most int64, onto ...int) (*Log, error) {
	l := &Log{path: path, most: most, onto: onto}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// openFile opens a file of the log to add to it.
func openFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make room for the log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return file, nil
}

func (l *Log) open() error {
	file, err := openFile(l.path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("look at the log: %w", errors.Join(err, file.Close()))
	}
	for _, fd := range l.onto {
		if err := unix.Dup3(int(file.Fd()), fd, 0); err != nil {
			return fmt.Errorf("write to the log: %w", errors.Join(err, file.Close()))
		}
	}
	if l.file != nil {
		_ = l.file.Close() // everything has been written
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write implements io.Writer. A file that cannot be put aside is written to nevertheless.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.most {
		if err := os.Rename(l.path, l.path+".1"); err == nil {
			_ = l.open() // after a failure the log goes on in the renamed file
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}
