package daemon

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/statefile"
)

// The prefixes in a destination's file come with the request: the caller reads the file. The daemon stores each list in
// a file of its own, because these are long, and the state has one line for each change.

const listsFolder = "lists"

// listKey identifies a list of one owner.
type listKey struct {
	book uint32
	path string // the owner's name for it
}

func (d *Daemon) listFile(key listKey) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", key.book, key.path)
	return filepath.Join(d.opts.StateDir, listsFolder, fmt.Sprintf("%016x", h.Sum64()))
}

// keepList stores a list for the next daemon. It notes a failure, and the daemon tries again. The caller holds d.mu.
func (d *Daemon) keepList(key listKey, list []netip.Prefix) {
	path := d.listFile(key)
	var text strings.Builder
	for _, p := range list {
		fmt.Fprintln(&text, p)
	}
	d.files.Wrote(path, d.files.Rewrite(path, []byte(text.String())))
}

// loadLists reads the stored lists of the limits. It logs a list that cannot be read: a limit with it applies to no
// traffic until the limit is set again.
func (d *Daemon) loadLists() {
	for n := range d.nodes.All() {
		if n.to == nil || n.to.selector.List == "" {
			continue
		}
		key := listKey{n.book(), n.to.selector.List}
		if _, ok := d.lists[key]; ok {
			continue
		}
		list, err := readListFile(d.listFile(key))
		if err != nil {
			d.once(n, fmt.Errorf("the prefixes of %s are not known any more (set it again): %w", key.path, err))
		} else {
			d.files.Noted(d.listFile(key))
		}
		d.lists[key] = list
		d.touchShared()
	}
}

func readListFile(path string) ([]netip.Prefix, error) {
	text, err := statefile.ReadTrusted(path)
	if err != nil {
		return nil, err
	}
	list, mistakes, err := destination.ReadList(bytes.NewReader(text))
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("%s:%d: %s", path, mistakes[0].Line, mistakes[0].Text)
	}
	return list, err
}

// dropLists forgets the lists that no limit uses any more. The caller holds d.mu.
func (d *Daemon) dropLists() {
	wanted := map[listKey]bool{}
	for n := range d.nodes.All() {
		if n.to != nil && n.to.selector.List != "" {
			wanted[listKey{n.book(), n.to.selector.List}] = true
		}
	}
	for key := range d.lists {
		if wanted[key] {
			continue
		}
		delete(d.lists, key)
		d.touchShared()
		if err := d.files.Drop(d.listFile(key)); err != nil {
			d.complain(err)
		}
	}
	if len(d.lists) == 0 {
		_ = os.Remove(filepath.Join(d.opts.StateDir, listsFolder)) // usually it does not exist
	}
}

// listed returns the prefixes in the file of a node's destination.
func (d *Daemon) listed(n *node) []netip.Prefix {
	if n.to == nil || n.to.selector.List == "" {
		return nil
	}
	return d.lists[n.listKey()]
}

func (n *node) listKey() listKey { return listKey{n.book(), n.to.selector.List} }

// takeList replaces a node's list. An empty list is an error if the node has none yet.
func (tx *transaction) takeList(n *node, list []netip.Prefix) error {
	if n.to.selector.List == "" || n.empty() {
		return nil
	}
	d, key := tx.d, n.listKey()
	was, known := d.lists[key]
	if len(list) == 0 {
		if !known {
			return destination.Refused("%s: its prefixes are not known, or there are none: netnice set --to-file %s ...", key.path, key.path)
		}
		return nil
	}
	d.lists[key] = list
	d.touchShared()
	tx.OnFailure(func() error {
		if d.lists[key] = was; !known {
			delete(d.lists, key)
		}
		d.touchShared()
		return nil
	})
	tx.Write(func() { d.keepList(key, list) })
	return nil
}
