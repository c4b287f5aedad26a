package kernelfeatures

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// traffic finds out about qdiscs and devices. First it checks whether the kernel has their module loaded or built in,
// then whether it could load it. If no list of modules tells that, traffic makes a qdisc or device in a network
// namespace of its own. In other cases that could load a module, which would be a trace.
type traffic struct {
	folders []string        // where the kernel's list of modules may be
	known   map[string]bool // names of modules, built in or loadable
	listed  bool            // known is complete
	read    bool
}

func newTraffic(release string) *traffic {
	return &traffic{folders: []string{
		filepath.Join("/lib/modules", release),
		filepath.Join("/usr/lib/modules", release),
		filepath.Join("/run/booted-system/kernel-modules/lib/modules", release),
	}}
}

// module returns a function that finds out whether the kernel has a module. try is its last resort.
func (t *traffic) module(name string, try func(*netlink.Handle) error) func() error {
	return func() error {
		if _, err := os.Stat(filepath.Join("/sys/module", name)); err == nil {
			return nil
		}
		t.readLists()
		if t.known[name] {
			return nil
		}
		if t.listed {
			return fmt.Errorf("%w: no module %s", ErrAbsent, name)
		}
		return inNewNamespace(try)
	}
}

func (t *traffic) qdisc(kind string) func() error {
	return t.module("sch_"+kind, func(h *netlink.Handle) error {
		return tryQdisc(h, kind, netlink.HANDLE_ROOT, netlink.MakeHandle(1, 0))
	})
}

func (t *traffic) tryClsact(h *netlink.Handle) error {
	return tryQdisc(h, "clsact", netlink.HANDLE_CLSACT, netlink.MakeHandle(0xffff, 0))
}

func (t *traffic) device(kind string) func() error {
	return t.module(kind, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "probe0"
		return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe1"})
	})
}

// congestion returns nil if a congestion control is available, or the kernel has its module.
func (t *traffic) congestion(name string, available []string) error {
	if slices.Contains(available, name) {
		return nil
	}
	t.readLists()
	if t.known["tcp_"+name] {
		return nil
	}
	return fmt.Errorf("%w: no congestion control %s", ErrAbsent, name)
}

// readLists reads the names of the modules that belong to the running kernel.
func (t *traffic) readLists() {
	if t.read {
		return
	}
	t.read, t.known = true, map[string]bool{}
	for _, folder := range t.folders {
		builtin := t.readList(filepath.Join(folder, "modules.builtin"))
		loadable := t.readList(filepath.Join(folder, "modules.dep"))
		if builtin && loadable {
			t.listed = true
			return
		}
	}
}

// readList reads a file whose lines start with a module's path.
func (t *traffic) readList(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // opened for reading
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // a module may depend on many
	for lines.Scan() {
		module, _, _ := strings.Cut(lines.Text(), ":")
		name, _, _ := strings.Cut(filepath.Base(module), ".")
		t.known[strings.ReplaceAll(name, "-", "_")] = true
	}
	return lines.Err() == nil
}

func tryQdisc(h *netlink.Handle, kind string, parent, handle uint32) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return h.QdiscAdd(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Parent: parent, Handle: handle},
		QdiscType:  kind,
	})
}

// inNewNamespace makes a network namespace and calls try in it. The namespace then ends, with all that is in it.
func inNewNamespace(try func(*netlink.Handle) error) error {
	done := make(chan error, 1)
	go func() {
		// The thread keeps the new namespace: it must end with the goroutine.
		runtime.LockOSThread()
		done <- func() error {
			ns, err := netns.New()
			if err != nil {
				return fmt.Errorf("%w: make a network namespace: %w", ErrUnknown, err)
			}
			defer ns.Close() //nolint:errcheck // nothing is written to it
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			defer h.Close()
			err = try(h)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("%w: %w", ErrAbsent, err)
			}
			return err
		}()
	}()
	return <-done
}
