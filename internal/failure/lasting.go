// Package failure logs what fails for a while.
package failure

import "log/slog"

// Lasting is a failure that may last: a loop finds it again at each turn. It is logged once, and again only after the loop
// has succeeded or if it is another one. The zero value has not failed.
type Lasting struct{ last string }

// Note logs err, unless it is the failure that was logged last. A nil error ends the failure.
func (l *Lasting) Note(log *slog.Logger, what string, err error) {
	switch {
	case err == nil:
		l.last = ""
	case err.Error() != l.last:
		l.last = err.Error()
		log.Warn(what, "err", err)
	}
}
