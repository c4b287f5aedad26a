package identity

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Container is a container of an engine of the machine's. Users' own engines make cgroups that
// any user could make and name as they like, so their containers are not among these.
type Container struct {
	// Names are those that the engine has written down; of LXC and systemd-nspawn there is one.
	Names []string
	ID    string // of 64 hex digits; "" of LXC and systemd-nspawn
	Dir   string // the absolute folder of its cgroup, "" if it does not run
}

// Subject returns how a container is called as a subject: by its first name, or the
// beginning of its id if it has no name.
func (c Container) Subject() string {
	if len(c.Names) > 0 {
		return c.Names[0]
	}
	return c.ID[:min(shortID, len(c.ID))]
}

// Containers lists the containers that there are, also those that do not run, by what they are called.
func (r *Resolver) Containers() ([]Container, error) {
	root, err := r.CgroupRoot()
	if err != nil {
		return nil, err
	}
	var dirs []string
	err = walkCgroups(root, func(dir string) bool {
		if name, id := containerOfFolder(filepath.Base(dir)); name+id != "" {
			dirs = append(dirs, dir)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("search %s for containers: %w", root, err)
	}
	names := r.containerNames()
	var list []Container
	for _, dir := range madeByOwner(root, outermost(dirs)) {
		c := Container{Dir: dir}
		var name string
		if name, c.ID = containerOfFolder(filepath.Base(dir)); name != "" {
			c.Names = []string{name}
		}
		if c.ID != "" {
			c.Names = names[c.ID]
			delete(names, c.ID)
		}
		list = append(list, c)
	}
	for id, of := range names { // they do not run
		list = append(list, Container{Names: of, ID: id})
	}
	return distinct(list), nil
}

// distinct lets each container have a subject of its own: a name that several have means none of them,
// which are called by their ids while they run.
func distinct(list []Container) []Container {
	holders := make(map[string]int)
	for _, c := range list {
		for _, name := range c.Names {
			holders[name]++
		}
	}
	var out []Container
	for _, c := range list {
		own := slices.DeleteFunc(slices.Clone(c.Names), func(name string) bool {
			return holders[name] > 1 || !containerName.MatchString(name)
		})
		if len(own) == 0 && (c.ID == "" || c.Dir == "") {
			continue // nothing else names it
		}
		c.Names = own
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Container) int { return cmp.Compare(a.Subject(), b.Subject()) })
	return out
}

// containerOfFolder reads from the name of a cgroup's folder of which container it is: its name with LXC and
// systemd-nspawn, its id with others, neither if it is of none.
func containerOfFolder(base string) (name, id string) {
	if m := containerCgroup.FindStringSubmatch(base); m != nil {
		return "", m[1]
	}
	name, is := strings.CutPrefix(base, "lxc.payload.")
	if !is {
		if name, is = strings.CutPrefix(base, "machine-"); is {
			name, is = strings.CutSuffix(name, ".scope")
		}
	}
	if !is || !containerName.MatchString(name) {
		return "", ""
	}
	return name, ""
}

// ContainerOf returns the container that a cgroup, given by its path below the mount, is or is in; the outermost one,
// and the zero value if there is none. Folders below one that a user has made do not count.
func (r *Resolver) ContainerOf(cgroup string) Container {
	below := "/"
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+cgroup), "/"), "/") {
		below = path.Join(below, part)
		if name, id := containerOfFolder(part); name+id != "" {
			return r.containerAt(below, name, id)
		}
	}
	return Container{}
}

// containerAt returns the container whose cgroup has this path below the mount, if no user has made that.
func (r *Resolver) containerAt(below, name, id string) Container {
	root, err := r.CgroupRoot()
	if err != nil {
		return Container{}
	}
	dir := filepath.Join(root, below)
	switch {
	case len(madeByOwner(root, []string{dir})) == 0:
		return Container{}
	case id == "":
		return Container{Names: []string{name}, Dir: dir}
	}
	return Container{Names: r.knownNames(id), ID: id, Dir: dir}
}

// Rules may ask for the container at each exec in one, so its names are remembered for
// namesLast; a container that is renamed has the other name after that time. Of a container that is not remembered
// its own file is read, and lists of all containers only where they have changed (engineLists): many start at a time.
const (
	namesLast = 10 * time.Second
	mostKnown = 4096
)

// knownContainers are the names of containers that were looked up, by id.
type knownContainers struct {
	mu    sync.Mutex
	names map[string]namesUntil
}

// namesUntil are a container's names, and when they are to be looked up again.
type namesUntil struct {
	names []string
	until time.Time
}

// knownNames returns the names of the container with this id, which an engine has written down before the
// container has its first process.
func (r *Resolver) knownNames(id string) []string {
	if names, known := r.known.of(id); known {
		return names
	}
	names := r.namesOf(id)
	r.known.note(id, names)
	return names
}

// of returns the names that are remembered of a container.
func (k *knownContainers) of(id string) (names []string, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, ok := k.names[id]
	return was.names, ok && time.Now().Before(was.until)
}

func (k *knownContainers) note(id string, names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil || len(k.names) >= mostKnown {
		k.names = make(map[string]namesUntil)
	}
	k.names[id] = namesUntil{names: names, until: time.Now().Add(namesLast)}
}
