package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// sysctlsOf reads the settings of the machine's network stack, without counters and without settings that the kernel
// changes by itself.
func sysctlsOf(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, root := range []string{"/proc/sys/net/core", "/proc/sys/net/ipv4", "/proc/sys/net/ipv6"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the device has disappeared
			}
			if err != nil || d.IsDir() {
				return err
			}
			if strings.HasSuffix(path, "/stable_secret") || strings.Contains(path, "/neigh/") || strings.Contains(path, "/conf/") {
				return nil
			}
			if text, err := os.ReadFile(path); err == nil {
				fmt.Fprintf(&b, "%s %s", path, text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// qdiscs lists the queueing disciplines of both namespaces and of the machine.
func (f *field) qdiscs() string {
	f.t.Helper()
	var list []string
	for name, n := range map[string]*netlink.Handle{"A": f.A.Netlink(), "B": f.B.Netlink(), "machine": new(netlink.Handle)} {
		text, err := qdiscsIn(n)
		if err != nil {
			f.t.Fatalf("list queueing disciplines: %v", err)
		}
		if name == "machine" { // other tests' daemons may have their own there meanwhile
			text = strings.Join(slices.DeleteFunc(strings.Split(text, ", "), func(q string) bool {
				return strings.HasPrefix(q, "netnice") || strings.Contains(q, " clsact ")
			}), ", ")
		}
		list = append(list, name+": "+text)
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

func qdiscsIn(h *netlink.Handle) (string, error) {
	links, err := h.LinkList()
	if err != nil {
		return "", err
	}
	var out []string
	for _, l := range links {
		list, err := h.QdiscList(l)
		if err != nil {
			return "", err
		}
		for _, q := range list {
			out = append(out, fmt.Sprintf("%s %s %x/%x", l.Attrs().Name, q.Type(), q.Attrs().Handle, q.Attrs().Parent))
		}
	}
	return strings.Join(out, ", "), nil
}
