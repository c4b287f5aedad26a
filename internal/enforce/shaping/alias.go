package shaping

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ownAlias begins the alias of every device that netnice makes.
const ownAlias = "netnice "

// aliasOf returns the alias of the devices of the netnice instance that has these pins. Containers have bpf file
// systems of their own, often at the same path. The number of the file system tells their instances apart.
func aliasOf(pinDir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(pinDir, &st); err != nil {
		return "", fmt.Errorf("look at %s: %w", pinDir, err)
	}
	return fmt.Sprintf("%s%s %d:%d", ownAlias, filepath.Clean(pinDir), unix.Major(st.Dev), unix.Minor(st.Dev)), nil
}

// isAliasOf reports whether a device has the alias of this netnice. An earlier build wrote no number.
func isAliasOf(have, alias string) bool {
	return have == alias || have == alias[:strings.LastIndexByte(alias, ' ')]
}
