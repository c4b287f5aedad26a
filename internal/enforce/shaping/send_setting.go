package shaping

import "time"

// Setting a socket's option takes the lock of the socket. A call that waits for room in the buffer may have it for as long as
// the queue is, and any program can have such a call wait.

const (
	// settingTime is how long netnice waits for a setting.
	settingTime = 10 * time.Millisecond
	// mostSettings is how many settings may wait for their sockets.
	mostSettings = 32
)

// settings counts those that wait.
type settings chan struct{}

func newSettings() settings { return make(settings, mostSettings) }

// within runs a function that may wait. done is false if it did not end in time, and goes on, or if too many wait: then it
// is not called.
func (s settings) within(most time.Duration, set func() error) (done bool, err error) {
	select {
	case s <- struct{}{}:
	default:
		return false, nil
	}
	result := make(chan error, 1)
	go func() {
		result <- set()
		<-s
	}()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case err := <-result:
		return err == nil, err
	case <-late.C:
		return false, nil
	}
}
