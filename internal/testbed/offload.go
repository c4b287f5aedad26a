package testbed

import (
	"fmt"

	"github.com/safchain/ethtool"
)

// Offload turns features of the namespace's Device on or off, by the names that
// `ethtool -k` prints, such as "rx-gro" or "tx-tcp-segmentation".
func (n *NetNS) Offload(features map[string]bool) error {
	err := n.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(Device, features)
	})
	if err != nil {
		return fmt.Errorf("change offloads of %s to %v: %w", Device, features, err)
	}
	return nil
}
