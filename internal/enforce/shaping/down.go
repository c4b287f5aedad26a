package shaping

import (
	"errors"
	"os"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/pacing"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// Down implements enforce.Kernel.
func (k *Kernel) Down() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	if k.send != nil {
		errs = append(errs, k.send.giveBuffersBack())
	}
	errs = append(errs, k.marks.remove())
	if err := errors.Join(k.dropAhead(), k.pacing.Down()); err != nil {
		return errors.Join(append(errs, err)...)
	}
	k.end()
	if k.on != nil {
		for id := range k.on.nodes { // all queues empty at the same time
			errs = append(errs, k.on.empty(id))
		}
	}
	errs = append(errs, k.downSending())
	if k.on == nil {
		return errors.Join(errs...)
	}
	k.on.awaitEmpty()
	errs = append(errs, k.on.visitWindows(), k.on.remove())
	k.on = nil
	return errors.Join(errs...)
}

// Down lifts everything without a daemon.
func Down(opts pacing.Options) error {
	alias, err := netdevice.AliasOf(opts.PinDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	opts.Beside, opts.Leaving, opts.Preload = true, true, false
	k, err := Open(opts)
	if errors.Is(err, bpf.ErrLayout) {
		return errors.Join(pacing.Down(opts), queuepair.RemoveEverywhere(alias))
	}
	if err != nil {
		return err
	}
	return k.Down()
}
