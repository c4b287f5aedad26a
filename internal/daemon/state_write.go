package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

// writeError says what to do where the state cannot be written.
func writeError(path string, err error) error {
	hint := "journalctl -u netnice"
	switch dir := filepath.Dir(path); {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "make room, and run the command again: df " + dir
	case errors.Is(err, unix.EROFS):
		hint = "mount it for writing, and run the command again: findmnt -T " + dir
	}
	return &api.Error{Code: api.CodeInternal, Message: fmt.Sprintf("the state %s cannot be written: %v; nothing was changed", path, err), Hint: hint, Cause: err}
}

// syncFolder makes a new name in a folder survive a power cut.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
