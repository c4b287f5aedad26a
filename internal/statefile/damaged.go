package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// DamagedSuffix follows the name of a file in the name under which its damaged version is kept, before a time.
const DamagedSuffix = ".damaged-"

// Damage is a damaged file that was found.
type Damage struct {
	Path  string
	Cause error
	Aside string // its other name; "" = none yet: it needs one before it is replaced
}

// Damaged lists the damaged files that are kept in a folder. The names are those of the undamaged files.
func Damaged(dir string, names []string) []string {
	var list []string
	for _, name := range names {
		found, _ := filepath.Glob(filepath.Join(dir, name+DamagedSuffix+"*")) // the pattern is well-formed
		list = append(list, found...)
	}
	slices.Sort(list)
	return list
}

// FoundDamaged notes a damaged file before anything overwrites it.
func (f *Folder) FoundDamaged(path string, cause error) {
	f.log.Error("a file of the state is damaged", "file", path, "err", cause)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.damaged[path] = &Damage{Path: path, Cause: cause}
}

// Damage returns the damage that was found in a file; false = none was.
func (f *Folder) Damage(path string) (Damage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if found := f.damaged[path]; found != nil {
		return *found, true
	}
	return Damage{}, false
}

// KeepDamaged gives a file another name before a new file replaces it, if it was damaged.
func (f *Folder) KeepDamaged(path string) error {
	if found, ok := f.Damage(path); !ok || found.Aside != "" {
		return nil
	}
	aside, err := f.secondName(path)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.damaged[path].Aside = aside
	return nil
}

// secondName gives a damaged file another name, and returns it.
func (f *Folder) secondName(path string) (string, error) {
	if err := f.Fault(path, false); err != nil {
		return "", err
	}
	for _, kept := range Damaged(f.dir, f.names) { // kept by a daemon that could not replace it
		if areSame(kept, path) {
			return kept, nil
		}
	}
	at := path + DamagedSuffix + time.Now().UTC().Format("20060102T150405Z")
	aside := at
	for n := 2; ; n++ {
		// The file gets a second name: if the daemon ends before it replaces the file, the next daemon still finds it.
		err := os.Link(path, aside)
		// Some file systems have no hard links.
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMLINK) {
			err = os.Rename(path, aside)
		}
		if errors.Is(err, fs.ErrExist) && n < 100 {
			aside = fmt.Sprintf("%s-%d", at, n)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have gone meanwhile
			return "", err
		}
		break
	}
	f.log.Error("the damaged file is kept; look at it", "file", aside)
	return aside, nil
}

func areSame(a, b string) bool {
	one, err := os.Lstat(a)
	if err != nil {
		return false
	}
	two, err := os.Lstat(b)
	return err == nil && os.SameFile(one, two)
}
