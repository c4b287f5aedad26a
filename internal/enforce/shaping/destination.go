package shaping

import (
	"errors"

	"github.com/netnice/netnice/internal/enforce"
)

// SetDestinations implements enforce.Kernel: what comes in for connections to these
// goes by their queues, and their windows are kept.
func (k *Kernel) SetDestinations(d enforce.Destinations) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.Kernel.SetDestinations(d); err != nil || k.on == nil {
		return err
	}
	return errors.Join(k.on.obj.AdoptDatagrams(nil), k.settleReceiving())
}
