package netdevice

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OwnAlias begins the alias of every device that netnice makes.
const OwnAlias = "netnice "

// AliasOf returns the alias of the devices of the netnice instance that has these pins. Containers have bpf file
// systems of their own, often at the same path. The number of the file system tells their instances apart.
func AliasOf(pinDir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(pinDir, &st); err != nil {
		return "", fmt.Errorf("look at %s: %w", pinDir, err)
	}
	return fmt.Sprintf("%s%s %d:%d", OwnAlias, filepath.Clean(pinDir), unix.Major(st.Dev), unix.Minor(st.Dev)), nil
}

// IsAliasOf reports whether a device has the alias of this netnice. An earlier build wrote no number.
func IsAliasOf(have, alias string) bool {
	return have == alias || have == alias[:strings.LastIndexByte(alias, ' ')]
}

// IsOwn reports whether any netnice has made a device.
func IsOwn(l netlink.Link) bool {
	return l.Type() == "veth" && strings.HasPrefix(l.Attrs().Alias, OwnAlias)
}
