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

// Container is a container of one of the machine's engines. Users' own engines make cgroups that
// any user could make and name freely, so their containers are not among these.
type Container struct {
	// Names are the names in the engine's list. A container of LXC or systemd-nspawn has one name.
	Names []string
	ID    string // 64 hex digits; "" with LXC and systemd-nspawn
	Dir   string // the absolute folder of its cgroup, "" if it does not run
}

// Subject returns a container's name as a subject: its first name, or the
// beginning of its id if it has no name.
func (c Container) Subject() string {
	if len(c.Names) > 0 {
		return c.Names[0]
	}
	return c.ID[:min(shortID, len(c.ID))]
}

// Containers lists all containers, also those that do not run, sorted by their subjects.
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
	for id, of := range names { // the remaining containers do not run
		list = append(list, Container{Names: of, ID: id})
	}
	return distinct(list), nil
}

// distinct gives each container a subject of its own. A name that several containers have identifies none of them;
// such a container is identified by its id while it runs.
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
			continue // no other name or id identifies the container
		}
		c.Names = own
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Container) int { return cmp.Compare(a.Subject(), b.Subject()) })
	return out
}

// containerOfFolder finds the container in the name of a cgroup's folder. It returns the name with LXC and
// systemd-nspawn, the id with other engines, and neither if the folder is no container's.
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

// ContainerOf returns the outermost container that a cgroup is or is in, and the zero value if there is none. The
// cgroup is given by its path below the mount. Folders below one that a user has made do not count.
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

// containerAt returns the container whose cgroup has this path below the mount, if no user has made the cgroup.
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

// Rules may ask for the container at each exec in it, so the resolver remembers its names for
// namesLast. A renamed container keeps its old name for that time. For a container that is not remembered, the resolver
// reads its own file, and the lists of all containers only where they have changed (engineLists). The reason is that
// many containers may start at a time.
const (
	namesLast = 10 * time.Second
	mostKnown = 4096
)

// knownContainers remembers the names of containers that were looked up, by id.
type knownContainers struct {
	mu    sync.Mutex
	names map[string]namesUntil
}

// namesUntil holds a container's names, and the time of the next look-up.
type namesUntil struct {
	names []string
	until time.Time
}

// knownNames returns the names of the container with this id. An engine lists the names before the
// container has its first process.
func (r *Resolver) knownNames(id string) []string {
	if names, known := r.known.of(id); known {
		return names
	}
	names := r.namesOf(id)
	r.known.note(id, names)
	return names
}

// of returns the remembered names of a container.
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
