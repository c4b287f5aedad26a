// Package prefixlists has the prefixes of limits that are for the content of a file. A request for such a limit brings
// the prefixes along: its caller has read the file. The package stores each list in a file of its own, because lists are
// long, and the state file has one line for each change. It sets no limit.
package prefixlists

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/statefile"
)

// Folder is the folder of the lists, within the state folder.
const Folder = "lists"

// Key identifies a list: the path is its owner's name for it.
type Key = observe.ListKey

// Transaction is a change of the host's.
type Transaction interface {
	// OnFailure says how a step is undone. Write adds a file to be written once all is in force.
	OnFailure(undo func() error)
	Write(write func())
}

// Options are what lists need.
type Options struct {
	Files *statefile.Folder // the state folder
	// Changed is called whenever readers of the limits would see another length of a list.
	Changed func()
	// Complain logs a failure once while it lasts.
	Complain func(error)
}

// Lists has the lists of all owners. The caller of its methods holds the lock of the limits.
type Lists struct {
	opts Options
	list map[Key][]netip.Prefix
}

// New returns no lists.
func New(o Options) *Lists { return &Lists{opts: o, list: make(map[Key][]netip.Prefix)} }

// Path returns the file that a list is stored in.
func (l *Lists) Path(key Key) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", key.RuleSet, key.Path)
	return l.opts.Files.Path(filepath.Join(Folder, fmt.Sprintf("%016x", h.Sum64())))
}

// Of returns the prefixes of a list, none if the list is not known.
func (l *Lists) Of(key Key) []netip.Prefix { return l.list[key] }

// All iterates over the lists.
func (l *Lists) All() iter.Seq2[Key, []netip.Prefix] { return maps.All(l.list) }

// Take replaces a list by the one that came with a request, if one came. Without any list so far there has to be one.
func (l *Lists) Take(tx Transaction, key Key, list []netip.Prefix) error {
	was, isKnown := l.list[key]
	if len(list) == 0 {
		if !isKnown {
			return destination.Refused("%s: its prefixes are not known, or there are none: netnice set --to-file %s ...", key.Path, key.Path)
		}
		return nil
	}
	l.put(key, list)
	tx.OnFailure(func() error {
		if isKnown {
			l.put(key, was)
		} else {
			l.remove(key)
		}
		return nil
	})
	tx.Write(func() { l.write(key, list) })
	return nil
}

func (l *Lists) put(key Key, list []netip.Prefix) {
	l.list[key] = list
	l.opts.Changed()
}

func (l *Lists) remove(key Key) {
	delete(l.list, key)
	l.opts.Changed()
}

// write stores a list for the next daemon. A failure is noted, and tried again by WriteAgain.
func (l *Lists) write(key Key, list []netip.Prefix) {
	path := l.Path(key)
	var text strings.Builder
	for _, p := range list {
		fmt.Fprintln(&text, p)
	}
	l.opts.Files.Wrote(path, l.opts.Files.Rewrite(path, []byte(text.String())))
}

// WriteAgain writes the files again that are behind.
func (l *Lists) WriteAgain() {
	for key, list := range l.list {
		l.opts.Files.WriteIfBehind(l.Path(key), func() { l.write(key, list) })
	}
}

// Load reads a stored list, unless it is known. If it cannot be read, the list is empty: a limit with it applies to no
// traffic until the limit is set again.
func (l *Lists) Load(key Key) error {
	if _, isKnown := l.list[key]; isKnown {
		return nil
	}
	path := l.Path(key)
	list, err := read(path)
	l.put(key, list)
	if err != nil {
		return fmt.Errorf("the prefixes of %s are not known any more (set it again): %w", key.Path, err)
	}
	l.opts.Files.Noted(path)
	return nil
}

func read(path string) ([]netip.Prefix, error) {
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

// RemoveUnused forgets the lists that no limit uses, and removes their files.
func (l *Lists) RemoveUnused(used map[Key]bool) {
	for key := range l.list {
		if used[key] {
			continue
		}
		l.remove(key)
		if err := l.opts.Files.Drop(l.Path(key)); err != nil {
			l.opts.Complain(err)
		}
	}
	if len(l.list) == 0 {
		_ = os.Remove(l.opts.Files.Path(Folder)) // usually it does not exist
	}
}
