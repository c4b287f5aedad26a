package testbed

import (
	"errors"
	"fmt"
	"os"

	"github.com/netnice/netnice/internal/testbed/relay"
)

// NewDistantPair is NewPair with a relay instead of the veth pair. The relay gives the path a delay, loss and a
// bottleneck. Device is then a TUN device at both ends. Sockets may have windows that suit 300 ms at 100 MB/s.
func NewDistantPair(c relay.Config) (*Pair, error) {
	return newPair(func(p *Pair) error { return p.relay(c) })
}

func (p *Pair) relay(c relay.Config) error {
	var err error
	if p.Relay, err = relay.Start(p.A, p.B, Device, c); err != nil {
		return err
	}
	for _, n := range []*NetNS{p.A, p.B} {
		link, err := n.link.LinkByName(Device)
		if err != nil {
			return fmt.Errorf("find %s: %w", Device, err)
		}
		// The queue holds packets that the relay, which waits for a processor too, has not read yet.
		if err := n.link.LinkSetTxQLen(link, 20000); err != nil {
			return fmt.Errorf("set the queue length of %s: %w", Device, err)
		}
		for _, s := range [][2]string{
			{"net/ipv4/tcp_rmem", "4096 131072 268435456"},
			{"net/ipv4/tcp_wmem", "4096 16384 268435456"},
			{"net/ipv4/tcp_no_metrics_save", "1"},
		} {
			if err := n.Sysctl(s[0], s[1]); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
