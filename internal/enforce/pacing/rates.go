package pacing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/bpf"
)

// A socket with a rate of its own (TCP_SNDRATE) needs no node to send by TCP. The base programs pace it. The egress
// hook defers a connection's first segments, and is on the root while there is such a socket. The program that sets
// the first rate waits until the policy says so.

// rateLook is the time between two searches for a socket with a rate.
const (
	rateLook   = 2 * time.Second
	socketLook = time.Second // the same while a socket has a node
)

// nextRateLook returns the time of the next search, unless an event comes before it.
func (k *Kernel) nextRateLook() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.rates {
		return time.Time{}
	}
	if k.hasSocketNodes() {
		return k.rateLooked.Add(socketLook)
	}
	return k.rateLooked.Add(rateLook)
}

func isEvent(event []byte, kind uint32) bool {
	return len(event) >= 4 && binary.NativeEndian.Uint32(event) == kind
}

// carryRates takes over the rates that sockets have from another release. Rates in an unreadable layout do not keep
// the daemon from starting.
func (k *Kernel) carryRates() error {
	err := k.obj.CarryRates()
	if errors.Is(err, bpf.ErrLayout) {
		k.opts.Logger.Warn("rates that programs have set on their own sockets are lost", "err", err)
		return nil
	}
	return err
}

// followRates attaches the egress hook if a socket has a rate. It detaches the hook if no socket has one and there
// is no node either.
func (k *Kernel) followRates() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lookAtRates()
}

func (k *Kernel) lookAtRates() error {
	k.rateLooked = time.Now()
	list, err := k.obj.ListSockets()
	if err != nil {
		return fmt.Errorf("list sockets: %w", err)
	}
	return k.setRatesOf(list)
}

func (k *Kernel) setRatesOf(list []bpf.SocketRecord) error {
	return k.setRates(!k.going && slices.ContainsFunc(list, hasRate))
}

func hasRate(r bpf.SocketRecord) bool {
	return r.State.RateBytesPerSec > 0 || r.State.ReceiveBytesPerSec > 0 || r.State.Own.Node != 0
}

// lastNodeWent detaches the hooks that are not needed without nodes.
func (k *Kernel) lastNodeWent() error {
	if err := k.lookAtRates(); err != nil {
		return err
	}
	if k.rates {
		return k.obj.DetachButEgress()
	}
	return k.detachForNodes()
}

func (k *Kernel) detachForNodes() error {
	k.cover = cover{}
	k.obj.ForgetSockets()
	return k.obj.Detach(false)
}

func (k *Kernel) setRates(rates bool) error {
	before := k.rates
	k.rates = rates
	switch {
	case rates:
		// A daemon that took over this state needs the hook on the root, too. The policy is written after the hook
		// is there.
		if err := k.coverAll(); err != nil {
			k.rates = before
			return err
		}
		if !before {
			return k.writePolicy()
		}
	case before:
		if err := k.writePolicy(); err != nil {
			return err
		}
		if len(k.nodes) == 0 {
			return k.detachForNodes()
		}
		k.cover.stale = true
	}
	return nil
}

// releaseRates takes the rates of all sockets away. removeAll then releases their connections.
func (k *Kernel) releaseRates() error {
	k.going = true
	if err := k.obj.ReleaseRates(); err != nil {
		return err
	}
	return k.setRates(false)
}
