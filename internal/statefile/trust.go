package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/identity"
)

// The daemon acts on the state with root's rights. For that reason it reads the state only from files that no other
// user could have written.

// othersWrite holds the mode bits by which users other than the owner may write.
const othersWrite = 0o022

// ReadTrusted reads a file of the state. The error is fs.ErrNotExist where there is none. It has a remedy where
// somebody else may have written the file.
func ReadTrusted(path string) ([]byte, error) {
	// O_NONBLOCK prevents that a FIFO in place of the file makes the daemon wait.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, distrusted(path, "is a symbolic link: whoever may write where it leads would set limits",
			fmt.Sprintf("see where it leads: readlink -f %s; then put it aside, limits in force are adopted: sudo mv %s %s.bad", path, path, path), err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no file (%s)", info.Mode().Type())
	}
	if whose, ok := strange(info); ok {
		return nil, distrusted(path, "belongs to "+whose+", who may have written it",
			fmt.Sprintf("look at it; if it is right: sudo chown root:root %s; else put it aside, limits in force are adopted: sudo mv %s %s.bad", path, path, path), nil)
	}
	if mode := info.Mode().Perm(); mode&othersWrite != 0 {
		return nil, distrusted(path, fmt.Sprintf("may be written by others than root (its mode is %04o)", mode),
			fmt.Sprintf("look at it; if it is right: sudo chmod 600 %s; else put it aside, limits in force are adopted: sudo mv %s %s.bad", path, path, path), nil)
	}
	return io.ReadAll(f)
}

// TrustFolder refuses a folder of the state in which others may put files.
func TrustFolder(dir string, info fs.FileInfo) error {
	if whose, ok := strange(info); ok {
		return distrusted(dir, "belongs to "+whose+", who may put another state there",
			fmt.Sprintf("look what is in it; then: sudo chown root:root %s", dir), nil)
	}
	if mode := info.Mode().Perm(); mode&othersWrite != 0 {
		return distrusted(dir, fmt.Sprintf("may be written by others than root (its mode is %04o)", mode),
			fmt.Sprintf("look what is in it; then: sudo chmod 755 %s", dir), nil)
	}
	return nil
}

// strange reports whether a file belongs neither to root nor to this process's user, and names its owner.
func strange(info fs.FileInfo) (whose string, ok bool) {
	st, known := info.Sys().(*syscall.Stat_t)
	if !known || st.Uid == 0 || int(st.Uid) == os.Geteuid() {
		return "", false
	}
	return fmt.Sprintf("user %s", identity.UserName(st.Uid)), true
}

func distrusted(path, why, hint string, cause error) error {
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("%s is not used: it %s; limits in force stay as they are", path, why),
		Hint:    hint,
		Cause:   cause,
	}
}

// Unusable adds a remedy to the reason why a file cannot be used, unless the reason has one.
func Unusable(path string, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("the state file %s cannot be used: %v; limits in force stay as they are", path, err),
		Hint:    fmt.Sprintf("put it aside and start again, the limits in force are then adopted: sudo mv %s %s.bad", path, path),
		Cause:   err,
	}
}
