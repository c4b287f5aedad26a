package enforcetest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
)

// Request plays a program that asks for a limit, or about one.
func (k *Kernel) Request(r enforce.Request) {
	ch := k.requestChannel()
	ch <- r
}

// Answered returns the answer to a request, if there is one yet.
func (k *Kernel) Answered(number uint64) (a enforce.Answer, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok = k.answers[number]
	return a, ok
}

// Requests implements enforce.Requests.
func (k *Kernel) Requests() <-chan enforce.Request { return k.requestChannel() }

func (k *Kernel) requestChannel() chan enforce.Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		k.requests = make(chan enforce.Request, 16)
	}
	return k.requests
}

// Answer implements enforce.Requests.
func (k *Kernel) Answer(number uint64, answer enforce.Answer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Answer"); err != nil {
		return err
	}
	if k.answers == nil {
		k.answers = make(map[uint64]enforce.Answer)
	}
	k.answers[number] = answer
	return nil
}

// Socket sets the socket that Asker returns for a request.
func (k *Kernel) Socket(number uint64, s enforce.SocketReservation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.askers == nil {
		k.askers = make(map[uint64]enforce.SocketReservation)
	}
	k.askers[number] = s
}

// Asker implements enforce.Requests.
func (k *Kernel) Asker(number uint64) (enforce.SocketReservation, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.askers[number]
	if r, has := k.reserved[s.Cookie]; has {
		s = r
	}
	return s, ok, nil
}

// Reserved implements enforce.Requests.
func (k *Kernel) Reserved() ([]enforce.SocketReservation, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.reserved), func(a, b enforce.SocketReservation) int { return cmp.Compare(a.Cookie, b.Cookie) }), nil
}

// Reserve implements enforce.Requests.
func (k *Kernel) Reserve(r enforce.SocketReservation) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.enter("Reserve"); err != nil {
		return err
	}
	if k.reserved == nil {
		k.reserved = make(map[uint64]enforce.SocketReservation)
	}
	k.reserved[r.Cookie] = r
	if r.SliceNS == 0 {
		delete(k.reserved, r.Cookie)
	}
	return nil
}
