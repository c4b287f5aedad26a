package testutil

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Log has the text that a part of netnice has logged.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Logger returns a logger that also writes to the output of the test.
func (l *Log) Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), l), nil))
}

// Count returns how often something was logged.
func (l *Log) Count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}
