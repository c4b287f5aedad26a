package pacing

import (
	"errors"
	"os"

	"github.com/netnice/netnice/internal/bpf"
)

// Down does its part of enforce.Kernel. After an error the kernel state is still open. After success nothing is left to
// close.
func (k *Kernel) Down() error {
	k.mu.Lock()
	errs := []error{k.releaseRates()}
	if err := k.removeAll(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, k.detachForNodes(), k.obj.Detach(true))
	k.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return err // still open: the caller may try again
	}
	// the pins are removed before the lock on their folder is released
	return errors.Join(k.stopWaiting(), k.obj.Remove(), k.endGuard())
}

// Down lifts everything without a daemon. It opens the pinned state, releases the connections, detaches the hooks
// and removes the pins. A folder without pins is no error.
func Down(opts Options) error {
	if _, err := os.Stat(opts.PinDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	opts.Beside, opts.Leaving = true, true // this Kernel is short-lived
	k, err := Open(opts)
	if errors.Is(err, bpf.ErrLayout) {
		// The pins are another release's. Its connections keep their last pacing rate until they end, but nothing
		// limits new ones.
		return bpf.RemovePins(opts.PinDir)
	}
	if err != nil {
		return err
	}
	return k.Down()
}
