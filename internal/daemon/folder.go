package daemon

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/statefile"
)

// The state folder may be removed while the daemon runs. The daemon then makes it again and writes all files. A service
// with ProtectSystem= cannot make the folder: systemd mounts it for the service once, at the start. The status then
// names the commands that make it again for the running service.

// stateFolder has the reason why a removed state folder is still missing.
type stateFolder struct {
	mu  sync.Mutex
	err error // the result of the last attempt, nil = the folder is there
}

func (f *stateFolder) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// fault returns nil while the folder is there.
func (f *stateFolder) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// folderView is how a process sees the state folder.
type folderView struct {
	service    bool // a service manager started the process, with mounts of its own
	mountPoint bool // the folder is a mount by itself there
}

// viewOf finds out how this process sees a folder.
func viewOf(dir string) folderView {
	own, err := os.Readlink("/proc/self/ns/mnt")
	first, firstErr := os.Readlink("/proc/1/ns/mnt")
	v := folderView{service: os.Getenv("NOTIFY_SOCKET") != "" && errors.Join(err, firstErr) == nil && own != first}
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_TYPE, &st) == nil {
		v.mountPoint = st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	return v
}

// folderHint says what to do if nothing can be written in the state folder, "" = unknown.
func folderHint(dir string, pid int, err error, v folderView) string {
	if errors.Is(err, unix.EROFS) && v.service && !v.mountPoint {
		return fmt.Sprintf("sudo mkdir -p -m 755 %[1]s\n"+
			"sudo nsenter -t %[2]d -m sh -c 'mount --bind %[1]s %[1]s && mount -o remount,bind,rw %[1]s'  has the running service write there again\n"+
			"(sudo systemctl restart netnice.service does so, too, and loses limits on parts of the traffic, shares of the processors, and who set what)", dir, pid)
	}
	var known *api.Error
	if errors.As(err, &known) && known.Hint != "" {
		return known.Hint
	}
	return statefile.DiskRemedy(dir, err)
}

// writeHint says what to do about a file of the state that cannot be written, "" = unknown.
func (d *Daemon) writeHint(err error) string {
	dir := d.opts.StateDir
	if fault := d.folder.fault(); fault != nil {
		err = fault
	}
	return folderHint(dir, d.pid, err, viewOf(dir))
}

// folderProblem returns the problem of a state folder that cannot be made again, for netnice status; false = there is
// no such problem.
func (d *Daemon) folderProblem() (api.Problem, bool) {
	fault := d.folder.fault()
	if fault == nil {
		return api.Problem{}, false
	}
	dir := d.opts.StateDir
	what, remedy := folderFault(dir, fault)
	p := api.Problem{
		Message: fmt.Sprintf("the state folder %s %s: %v; limits hold, would be lost with a restart, and are written as soon as that works", dir, what, fault),
		Hint:    d.writeHint(fault),
	}
	if p.Hint == "" {
		p.Hint = remedy
	}
	return p, true
}

// folderFault says what is wrong with a folder, and what to do if no better remedy is known. fault is the reason why
// the daemon does not hold the folder.
func folderFault(dir string, fault error) (what, remedy string) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(fault, errUnseen):
		return "cannot be looked at", "look what it is: ls -ld " + dir
	case err == nil && info.IsDir():
		return "was replaced by another, which cannot be taken", "look what it is: ls -ld " + dir
	}
	return "was removed, and is not there again", "sudo mkdir -p -m 755 " + dir
}
