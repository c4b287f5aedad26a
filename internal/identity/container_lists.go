package identity

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Podman has one file for all containers, and nerdctl has a folder of one namespace's names with a file for each
// name. The resolver remembers both, and reads them again when they have changed.

// A list that has changed less than this time ago is read again each time. File systems count times in ticks. The
// time of a folder does not change when the content of a new file in it is written.
const (
	storeAge  = 100 * time.Millisecond
	folderAge = 2 * time.Second
)

// listStamp tells one state of a file or a folder from the next.
type listStamp struct {
	device, inode     uint64
	size              int64
	modified, changed unix.Timespec
}

// engineList is a list of containers: their names by id.
type engineList struct {
	stamp listStamp
	names map[string][]string
}

// engineLists are the lists that were read, by path.
type engineLists struct {
	mu    sync.Mutex // held also while lists are read, so that other callers wait and then find them
	lists map[string]engineList
}

// engineLists returns the lists of all engines that have some, which nobody may change.
func (r *Resolver) engineLists() (all []map[string][]string) {
	r.listed.mu.Lock()
	defer r.listed.mu.Unlock()
	lists := make(map[string]engineList)
	take := func(paths []string, age time.Duration, read func(path string) map[string][]string) {
		for _, path := range paths {
			list := r.listed.lists[path]
			stamp, err := stampOf(path)
			if err != nil {
				continue // the list goes meanwhile
			}
			if list.names == nil || list.stamp != stamp {
				list = engineList{stamp: stamp, names: read(path)}
			}
			if time.Since(time.Unix(stamp.changed.Unix())) > age {
				lists[path] = list
			}
			all = append(all, list.names)
		}
	}
	take(r.podmanStores(), storeAge, readPodman)
	take(r.lists("nerdctl/*/names/*"), folderAge, readNerdctl)
	r.listed.lists = lists // lists that have gone are dropped
	return all
}

func stampOf(path string) (listStamp, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return listStamp{device: st.Dev, inode: st.Ino, size: st.Size, modified: st.Mtim, changed: st.Ctim}, err
}

// readPodman returns the names in Podman's store.
func readPodman(store string) map[string][]string {
	names := make(map[string][]string)
	for _, c := range podmanStore(store) {
		names[c.ID] = append(names[c.ID], c.Names...)
	}
	return names
}

// readNerdctl reads a folder of nerdctl. Each file in it has a container's name, and contains the id.
func readNerdctl(dir string) map[string][]string {
	names := make(map[string][]string)
	files, _ := os.ReadDir(dir) // none if it goes meanwhile
	for _, f := range files {
		if id, err := readTrimmed(filepath.Join(dir, f.Name())); err == nil {
			names[id] = append(names[id], f.Name())
		}
	}
	return names
}
