// Package units reads and prints rates, volumes and durations, so that every
// part of netnice means the same by them. It owns the grammar of a rate
// ("10mbit", "1MB/s", "512K"), and decides which texts are too ambiguous.
// It never guesses, never touches the machine and keeps no state.
//
// Rates are bytes of IP packets per second in 1..MaxRate, 0 meaning none;
// volumes are bytes; durations are nanoseconds.
package units

import (
	"errors"
	"fmt"
	"strings"
)

// MaxRate is the highest rate that can be written, in bytes per second.
const MaxRate uint64 = 1<<63 - 1

// ErrNeedsLink says that a share of a link ("10%") was given where a rate is wanted.
var ErrNeedsLink = errors.New("a share of a link is no rate")

// ParseError says why a text is no rate or duration, and what to write instead.
type ParseError struct {
	Text    string // as given
	Problem string // a clause that goes on from `rate "TEXT" `
	Remedy  string // a text to write instead
	what    string // "rate" or "duration"
	cause   error
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s %q %s", e.what, clip(e.Text), e.Problem)
}

// Hint returns the remedy.
func (e *ParseError) Hint() string { return e.Remedy }

// Unwrap returns ErrNeedsLink where that is the reason, else nil.
func (e *ParseError) Unwrap() error { return e.cause }

// clip keeps a message on one line for an input of any length.
func clip(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// System is the unit system of output.
type System int

// Bytes prints "1.25 MB/s", Bits prints "10 Mbit/s"; both with prefixes of 1000.
const (
	Bytes System = iota
	Bits
)

func (s System) String() string {
	if s == Bits {
		return "bits"
	}
	return "bytes"
}

// Set reads "bytes" or "bits"; with String and Type it makes a System a flag.
func (s *System) Set(text string) error {
	switch strings.ToLower(text) {
	case "bytes":
		*s = Bytes
	case "bits":
		*s = Bits
	default:
		return errors.New("want bytes or bits")
	}
	return nil
}

// Type names the value in a flag's help.
func (s *System) Type() string { return "bytes|bits" }
