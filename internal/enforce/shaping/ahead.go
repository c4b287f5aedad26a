package shaping

import (
	"errors"
	"fmt"
	"io"

	"github.com/netnice/netnice/internal/bpf"
)

// The kernel verifies the programs of an object while it loads them. The first limit would have to wait for that.
// The daemon therefore loads the objects before a limit needs them. It attaches and pins nothing at that time.

// loading is an object that a goroutine loads in the background.
type loading[T io.Closer] struct {
	done chan struct{}
	obj  T
	err  error
}

func startLoading[T io.Closer](load func() (T, error)) *loading[T] {
	l := &loading[T]{done: make(chan struct{})}
	go func() {
		l.obj, l.err = load()
		close(l.done)
	}()
	return l
}

// drop waits until the load ends, and closes the object.
func (l *loading[T]) drop() error {
	if l == nil {
		return nil
	}
	<-l.done
	if l.err == nil {
		return l.obj.Close()
	}
	return nil // the next caller that needs the object sees the error
}

// ahead is the set of objects that are loaded, or being loaded, before a limit needs them. A nil object is not loaded.
type ahead struct {
	shaping *loading[*bpf.Shaping]
	sending *loading[*bpf.Sending]
}

// loadAhead loads the missing objects in the background.
func (k *Kernel) loadAhead(shaping, sending bool) {
	if k.closed {
		return
	}
	if shaping && k.on == nil && k.ahead.shaping == nil {
		k.ahead.shaping = startLoading(k.base.LoadShaping)
	}
	if sending && k.send == nil && k.ahead.sending == nil {
		k.ahead.sending = startLoading(k.base.LoadSending)
	}
}

// shapingObject returns the object for ingress. It loads the object now, unless loadAhead has done so.
func (k *Kernel) shapingObject() (*bpf.Shaping, error) {
	return taken(&k.ahead.shaping, k.base.LoadShaping)
}

// sendingObject returns the object for non-TCP egress, in the same way as shapingObject.
func (k *Kernel) sendingObject() (*bpf.Sending, error) {
	return taken(&k.ahead.sending, k.base.LoadSending)
}

// taken returns the object that was loaded ahead, or loads one if that failed. It waits for a load that is under way,
// because that load ends sooner than one that begins now.
func taken[T io.Closer](l **loading[T], load func() (T, error)) (T, error) {
	early := *l
	*l = nil
	if early != nil {
		if <-early.done; early.err == nil {
			return early.obj, nil
		}
	}
	return load()
}

// renew replaces the ingress programs if a new load would make different ones. The new programs take over as those
// of a restarted daemon do.
func (k *Kernel) renew() error {
	if !k.on.obj.Outdated() {
		return nil
	}
	next := startLoading(k.base.LoadShaping)
	if <-next.done; next.err != nil {
		return fmt.Errorf("see what NAT does: %w", next.err)
	}
	k.ahead.shaping = next
	err := k.on.close()
	k.on = nil
	if err := errors.Join(err, k.resumeReceiving()); err != nil {
		return fmt.Errorf("see what NAT does: %w", err)
	}
	return nil
}

// dropAhead closes the objects that no limit needed.
func (k *Kernel) dropAhead() error {
	err := errors.Join(k.ahead.shaping.drop(), k.ahead.sending.drop())
	k.ahead = ahead{}
	return err
}
