package testbed

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Privileged returns nil if the caller has the capabilities that namespaces,
// devices and queueing disciplines need.
func Privileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	for _, c := range []struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			return fmt.Errorf("needs root (%s is missing)", c.name)
		}
	}
	return nil
}
