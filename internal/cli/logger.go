package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
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
