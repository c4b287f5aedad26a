package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// logger makes the log of a command that serves. A log in the journal has the priority of each record, any other log
// has the time.
func (a *App) logger(out io.Writer, level slog.Level) *slog.Logger {
	if a.Journal {
		return slog.New(newJournalHandler(out, level))
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}

// These are priorities of the journal, as sd-daemon(3) writes them at the beginning of a line.
const (
	journalError   = "<3>"
	journalWarning = "<4>"
	journalInfo    = "<6>"
	journalDebug   = "<7>"
)

func journalPriority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return journalError
	case level >= slog.LevelWarn:
		return journalWarning
	case level >= slog.LevelInfo:
		return journalInfo
	}
	return journalDebug
}

// journalHandler writes a record as one line that begins with its priority. The journal removes the priority from the
// line, and adds the time itself.
type journalHandler struct {
	shared *journalLine
	text   slog.Handler // writes into the shared line
}

// journalLine holds the state that all handlers of one log share.
type journalLine struct {
	mu   sync.Mutex
	out  io.Writer
	line bytes.Buffer
}

func newJournalHandler(out io.Writer, level slog.Level) slog.Handler {
	shared := &journalLine{out: out}
	return &journalHandler{shared: shared, text: slog.NewTextHandler(&shared.line, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutTimeAndLevel})}
}

// withoutTimeAndLevel drops the time and the level that slog itself adds to a record, and no attributes of the caller
// with these names.
func withoutTimeAndLevel(groups []string, a slog.Attr) slog.Attr {
	_, isLevel := a.Value.Any().(slog.Level)
	if len(groups) == 0 && (a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime || a.Key == slog.LevelKey && isLevel) {
		return slog.Attr{}
	}
	return a
}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	h.shared.line.Reset()
	h.shared.line.WriteString(journalPriority(r.Level))
	if err := h.text.Handle(ctx, r); err != nil {
		return fmt.Errorf("write a line of the log: %w", err)
	}
	_, err := h.shared.out.Write(h.shared.line.Bytes())
	return err
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journalHandler{shared: h.shared, text: h.text.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{shared: h.shared, text: h.text.WithGroup(name)}
}

// mostLogBytes is the size at which a file of the log is put aside. There are two files at most.
const mostLogBytes = 1 << 20

// rotatingLog is the file to which a detached daemon writes its log. A full file is renamed to FILE.1, replaces the
// former file of that name, and a new file begins.
type rotatingLog struct {
	path string
	most int64
	onto []int // file descriptors that always are the present file, for output that does not go through the log

	mu   sync.Mutex
	file *os.File
	size int64
}

func openRotatingLog(path string, most int64, onto ...int) (*rotatingLog, error) {
	l := &rotatingLog{path: path, most: most, onto: onto}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// openLog opens a file of the log to add to it.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make room for the log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return file, nil
}

func (l *rotatingLog) open() error {
	file, err := openLog(l.path)
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
func (l *rotatingLog) Write(p []byte) (int, error) {
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
