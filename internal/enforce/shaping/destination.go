package shaping

import (
	"errors"

	"github.com/netnice/netnice/internal/enforce"
)

// SetDestinations implements enforce.DestinationSetter. Received packets of the named connections go through the queues of
// their nodes, and their receive windows are bounded.
func (k *Kernel) SetDestinations(d enforce.Destinations) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.pacing.SetDestinations(d); err != nil || k.on == nil {
		return err
	}
	return errors.Join(k.on.obj.AdoptDatagrams(nil), k.settleReceiving())
}
