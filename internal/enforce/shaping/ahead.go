package shaping

import (
	"errors"
	"fmt"
	"io"

	"github.com/netnice/netnice/internal/bpf"
)

// The kernel verifies the programs of an object as it is loaded, which the first
// limit would wait for. So what will be needed is loaded ahead: nothing is attached
// or pinned then.

// loading is an object that is loaded in the background.
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

// drop waits for the end of it, and lets go of what is loaded.
func (l *loading[T]) drop() error {
	if l == nil {
		return nil
	}
	<-l.done
	if l.err == nil {
		return l.obj.Close()
	}
	return nil // who needs it is told
}

// ahead is what is loaded, or being loaded, before it is needed; nil = is not.
type ahead struct {
	shaping *loading[*bpf.Shaping]
	sending *loading[*bpf.Sending]
}

// loadAhead loads in the background what is not there.
func (k *Kernel) loadAhead(shaping, sending bool) {
	if k.closed {
		return
	}
	if shaping && k.on == nil && k.ahead.shaping == nil {
		k.ahead.shaping = startLoading(k.Object().LoadShaping)
	}
	if sending && k.send == nil && k.ahead.sending == nil {
		k.ahead.sending = startLoading(k.Object().LoadSending)
	}
}

// shapingObject is the object for what comes in: loaded ahead or now.
func (k *Kernel) shapingObject() (*bpf.Shaping, error) {
	return taken(&k.ahead.shaping, k.Object().LoadShaping)
}

// sendingObject is the object for what is sent and is no TCP.
func (k *Kernel) sendingObject() (*bpf.Sending, error) {
	return taken(&k.ahead.sending, k.Object().LoadSending)
}

// taken is what was loaded ahead, if that went well: what is under way is nearer
// than what begins.
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

// renew has programs that would be others if they were loaded now take over, as
// those of a daemon that starts anew do.
func (k *Kernel) renew() error {
	if !k.on.obj.Outdated() {
		return nil
	}
	next := startLoading(k.Object().LoadShaping)
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

// dropAhead lets go of what was not needed.
func (k *Kernel) dropAhead() error {
	err := errors.Join(k.ahead.shaping.drop(), k.ahead.sending.drop())
	k.ahead = ahead{}
	return err
}
