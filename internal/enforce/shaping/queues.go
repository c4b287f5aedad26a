package shaping

import "github.com/netnice/netnice/internal/enforce"

// Queues implements enforce.Figures.
func (k *Kernel) Queues() (list []enforce.Queue, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.on != nil {
		for ns := range k.on.places {
			list = append(list, enforce.Queue{Direction: enforce.Down, Netns: ns})
		}
	}
	if k.send != nil {
		for ns := range k.send.places {
			list = append(list, enforce.Queue{Direction: enforce.Up, Netns: ns})
		}
	}
	return list, nil
}
