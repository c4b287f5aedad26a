package enforcetest

import "github.com/netnice/netnice/internal/enforce"

// Answer is what the daemon answered to a request.
type Answer struct {
	Errno       uint32
	BytesPerSec uint64
}

// Request has a program ask for a limit, or about one.
func (k *Kernel) Request(r enforce.Request) {
	ch := k.requestChannel()
	ch <- r
}

// Answered returns the answer to a request, if there is one yet.
func (k *Kernel) Answered(number uint64) (a Answer, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok = k.answers[number]
	return a, ok
}

// Requests implements enforce.Kernel.
func (k *Kernel) Requests() <-chan enforce.Request { return k.requestChannel() }

func (k *Kernel) requestChannel() chan enforce.Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		k.requests = make(chan enforce.Request, 16)
	}
	return k.requests
}

// Answer implements enforce.Kernel.
func (k *Kernel) Answer(number uint64, errno uint32, bytesPerSec uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Answer"); err != nil {
		return err
	}
	if k.answers == nil {
		k.answers = make(map[uint64]Answer)
	}
	k.answers[number] = Answer{Errno: errno, BytesPerSec: bytesPerSec}
	return nil
}
