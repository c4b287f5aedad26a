package shaping

import (
	"errors"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/pacing"
	"github.com/netnice/netnice/internal/failure"
)

// Sockets limit themselves by an option (include/netnice.h). Pacing alone enforces the limit on TCP egress. Ingress and
// non-TCP egress of a socket need a class in a queue, and so a node. The node is made here when a socket asks for it,
// and goes with the socket.

// followSockets makes and removes the nodes of sockets.
func (k *Kernel) followSockets() {
	var failing failure.Lasting
	for {
		select {
		case <-k.stop:
			return
		case <-k.pacing.SocketsChanged():
		}
		failing.Note(k.log, "the limits of some sockets do not hold", k.settleSockets())
	}
}

func (k *Kernel) settleSockets() error {
	k.reserving.Lock() // a node that Reserve makes meanwhile would seem to have no socket
	wishes, err := k.pacing.SocketWishes()
	if err != nil {
		k.reserving.Unlock()
		return k.unlessStopped(err)
	}
	lifted, err := k.liftSockets(wishes)
	k.reserving.Unlock()
	if !k.mu.TryLock() {
		k.mu.Lock()
		var again error // the first list may be old by the time of the lock
		wishes, again = k.pacing.SocketWishes()
		err = errors.Join(err, again)
	}
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	for _, id := range lifted {
		err = errors.Join(err, k.endQueues(id))
	}
	changed, failed := k.setSockets(wishes)
	err = errors.Join(err, failed)
	switch {
	case changed || len(lifted) > 0:
		return errors.Join(err, k.pacing.AssignSockets(), k.settleReceiving())
	case len(wishes) > 0: // the daemon calls Maintain for its own nodes only
		return errors.Join(err, k.tend())
	}
	return err
}

// unlessStopped returns the error, or nil if the kernel side is closed.
func (k *Kernel) unlessStopped(err error) error {
	select {
	case <-k.stop:
		return nil
	default:
		return err
	}
}

// liftSockets lifts the nodes that no socket wants any more. It does not wait for work on queues (mu), which may take
// seconds while other programs want the kernel's network lock, too. New packets of the sockets then pass their backlog.
func (k *Kernel) liftSockets(wishes []pacing.SocketWish) (lifted []uint32, err error) {
	wanted := map[uint64]bool{}
	for _, w := range wishes {
		wanted[w.Cookie] = true
	}
	var errs []error
	for _, spec := range k.pacing.SocketNodes() {
		if !wanted[spec.Subject] {
			errs = append(errs, k.pacing.RemoveNode(spec.ID))
			lifted = append(lifted, spec.ID)
		}
	}
	return lifted, k.unlessStopped(errors.Join(errs...))
}

// setSockets makes or changes the nodes that sockets want.
func (k *Kernel) setSockets(wishes []pacing.SocketWish) (changed bool, err error) {
	before := map[uint64]enforce.NodeSpec{}
	for _, spec := range k.pacing.SocketNodes() {
		before[spec.Subject] = spec
	}
	var errs []error
	var full error
	of := map[uint32]int{}
	for _, w := range wishes {
		spec, had := before[w.Cookie]
		user := k.pacing.CountsAs(w.UID)
		of[user]++
		if up, down := socketRates(spec); up == w.Up && down == w.Down {
			continue
		}
		if !had {
			spec = enforce.NodeSpec{ID: k.pacing.FreeSocketNode(), Kind: enforce.KindSocket, Subject: w.Cookie}
			if spec.ID == 0 || user != 0 && of[user] > enforce.MostSocketsOfUser {
				full = pacing.ErrTooManySockets
				continue
			}
		}
		spec.Ceilings = [enforce.Owners][enforce.Directions]enforce.Ceiling{}
		spec.Ceilings[enforce.OwnerUser][enforce.Up].BytesPerSec = w.Up
		spec.Ceilings[enforce.OwnerUser][enforce.Down].BytesPerSec = w.Down
		changed = true
		errs = append(errs, k.setSocket(spec))
	}
	return changed, errors.Join(append(errs, full)...)
}

// Reserve implements enforce.Requests.
func (k *Kernel) Reserve(r enforce.SocketReservation) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	k.reserving.Lock()
	defer k.reserving.Unlock()
	return k.pacing.Reserve(r)
}

// socketRates returns the rates that a socket wanted when its node was last set.
func socketRates(spec enforce.NodeSpec) (up, down uint64) {
	of := spec.Ceilings[enforce.OwnerUser]
	return of[enforce.Up].BytesPerSec, of[enforce.Down].BytesPerSec
}

// setSocket makes or changes a node. The class for ingress exists before the node does.
func (k *Kernel) setSocket(spec enforce.NodeSpec) error {
	rate, _ := ceiling(spec)
	if rate != 0 {
		if err := k.start(); err != nil {
			return err
		}
		if err := k.on.set(spec); err != nil {
			return err
		}
	}
	if err := k.pacing.SetNode(spec); err != nil {
		return err
	}
	if rate == 0 && k.on != nil {
		k.drain(spec.ID)
		if err := k.on.release(spec.ID); err != nil {
			return err
		}
	}
	return k.setSending(spec)
}

// endQueues ends the queueing for a node that was lifted.
func (k *Kernel) endQueues(id uint32) error {
	err := k.sendsNoMore(id)
	if k.on != nil {
		k.drain(id)
		err = errors.Join(err, k.on.release(id))
	}
	return err
}

// settleReceiving attaches the ingress programs where sockets with a limit on ingress live, and has the sockets'
// windows set.
func (k *Kernel) settleReceiving() error {
	if k.on == nil {
		return nil
	}
	if err := k.settle(); err != nil || k.on == nil {
		return err
	}
	return k.on.visitWindows()
}
