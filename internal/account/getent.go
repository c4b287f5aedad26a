package account

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The databases of getent.
const (
	passwd     = "passwd"
	group      = "group"
	initgroups = "initgroups"
)

const (
	// mostOutput bounds the output of one call that is read: a group may have many members.
	mostOutput = 4 << 20
	// mostName is longer than any name of an account (LOGIN_NAME_MAX is 256).
	mostName = 256
	// reapPause is the time to wait for processes of a killed getent that still have its output open.
	reapPause = 100 * time.Millisecond
	// nobodyFound is the exit status of getent for an entry that it does not find.
	nobodyFound = 2
)

// question is a question to getent.
type question struct{ database, key string }

// answer is the answer of getent.
type answer struct {
	user   User
	group  Group
	groups []uint32
	err    error
}

type unknownError question

func (e unknownError) Error() string {
	switch {
	case e.database == group:
		return fmt.Sprintf("no group is called %q", e.key)
	case isNumber(e.key):
		return "no user has the number " + e.key
	}
	return fmt.Sprintf("no user is called %q", e.key)
}

func (unknownError) Is(target error) bool { return target == ErrUnknown }

func unknown(q question) error { return unknownError(q) }

// askable reports whether a key may be passed to a command. It has to be a name as directories have them, or the number
// of a user. Such a name begins with a letter, a digit or _, so that it is no flag. A name of digits alone would be
// taken for a number.
func (q question) askable() bool {
	if isNumber(q.key) {
		id, err := ParseID(q.key)
		return q.database == passwd && err == nil && decimal(id) == q.key
	}
	return isName(q.key)
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func isName(text string) bool {
	if text == "" || len(text) > mostName || !utf8.ValidString(text) {
		return false
	}
	for i, r := range text {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_'
		if !letter && (i == 0 || !strings.ContainsRune(`.-@\$`, r)) {
			return false
		}
	}
	return true
}

// errQueued says that a question was never asked: it says nothing about the account.
var errQueued = fmt.Errorf("%w: it has more questions than it can answer", ErrUnanswered)

// lookUp asks getent, once it has one of the slots.
func (d *Directory) lookUp(ctx context.Context, q question, slots chan struct{}) answer {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return answer{err: errQueued}
	}
	text, err := d.getent(ctx, q)
	if err != nil {
		return answer{err: err}
	}
	return parseAnswer(q, text)
}

// getent runs the command, and returns its output.
func (d *Directory) getent(ctx context.Context, q question) ([]byte, error) {
	path := d.command()
	if path == "" {
		return nil, unknown(q) // a machine without it has no other accounts than those of the files
	}
	cmd := exec.CommandContext(ctx, path, q.database, q.key)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"LC_ALL=C"}, "/", reapPause
	var out bounded
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %s %s %s took longer than %v", ErrUnanswered, path, q.database, q.key, d.opts.Limit)
	case errors.As(err, &exit) && exit.ExitCode() == nobodyFound:
		return nil, unknown(q)
	case err != nil:
		return nil, fmt.Errorf("%w: %s %s %s: %w", ErrUnanswered, path, q.database, q.key, err)
	}
	return out.text.Bytes(), nil
}

// command returns the path of getent, "" if there is none.
func (d *Directory) command() string {
	for _, path := range d.opts.Getent {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// bounded stores what is written to it, and refuses more than mostOutput.
type bounded struct{ text bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > mostOutput {
		return 0, errors.New("it prints too much")
	}
	return b.text.Write(p)
}

// parseAnswer parses the one line that getent prints.
func parseAnswer(q question, text []byte) (a answer) {
	line, _, _ := strings.Cut(string(text), "\n")
	ok := false
	switch q.database {
	case passwd:
		a.user, ok = parseUser(line)
		if ok && isNumber(q.key) && decimal(a.user.UID) != q.key {
			a.user, ok = User{}, false
		}
	case group:
		a.group, ok = parseGroup(line)
		a.group.members = nil // no caller needs them
	case initgroups:
		a.groups, ok = parseNumbers(line, q.key)
	}
	if !ok {
		a.err = fmt.Errorf("%w: getent %s %s prints what cannot be read: %.80q", ErrUnanswered, q.database, q.key, line)
	}
	return a
}

// parseNumbers parses a line of getent initgroups: a name, and the numbers of its groups.
func parseNumbers(line, name string) (list []uint32, ok bool) {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != name {
		return nil, false
	}
	for _, word := range words[1:] {
		gid, err := ParseID(word)
		if err != nil {
			return nil, false
		}
		list = append(list, gid)
	}
	return list, true
}
