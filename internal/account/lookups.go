package account

import (
	"errors"
	"time"
)

const (
	// LookUpPatience is the time for which readers of a file that names users wait for the name service while no answer
	// comes.
	LookUpPatience = 10 * time.Second
	// MissingPause is the interval at which such a file is read again after look-ups without an answer: a directory may
	// come up later.
	MissingPause = time.Minute
)

// LookUps are the pending look-ups of the users in a file. However many there are, the reader waits as long as answers
// come.
type LookUps struct {
	answered int       // the greatest number of answers so far
	since    time.Time // time of the last new answer
}

// AreOver reports whether no answer has come for LookUpPatience; answered is the present number of answers.
func (l *LookUps) AreOver(now time.Time, answered int) bool {
	if l.since.IsZero() || answered > l.answered {
		l.answered, l.since = answered, now
	}
	return now.Sub(l.since) >= LookUpPatience
}

// IsAnswer reports whether a look-up of a user has an answer, even if it is that there is no such user.
func IsAnswer(err error) bool { return err == nil || errors.Is(err, ErrUnknown) }
