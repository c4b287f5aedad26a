package identity

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// Engines name a container's cgroup after its id of 64 hex digits: Docker
// docker-ID.scope or docker/ID, Podman libpod-ID.scope or libpod-ID, containerd
// cri-containerd-ID.scope or ID below kubepods, CRI-O crio-ID.scope; LXC and
// systemd-nspawn after its name.
var (
	containerCgroup = regexp.MustCompile(`^(?:(?:docker|libpod|cri-containerd|crio|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?$`)
	containerID     = regexp.MustCompile(`^[0-9a-f]{4,64}$`)
	containerName   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
)

// shortID is the number of digits of an id that engines print.
const shortID = 12

// container resolves a container by its name or the beginning of its id. A container that
// an engine knows but that does not run resolves to a pending subject.
func (r *Resolver) container(name string) (Resolved, error) {
	s := api.Subject{Kind: api.KindContainer, ID: name}
	if !containerName.MatchString(name) {
		return Resolved{}, badSubject(s, "a container is named by its name or id", "docker ps, or podman ps")
	}
	root, err := r.CgroupRoot()
	if err != nil {
		return Resolved{}, err
	}
	ids := r.containersNamed(name)
	res := Resolved{Subject: s, Kind: enforce.KindCgroup, Name: name}
	var dirs []string
	err = walkCgroups(root, func(dir string) bool {
		base := filepath.Base(dir)
		m := containerCgroup.FindStringSubmatch(base)
		switch {
		case base == "lxc.payload."+name || base == "machine-"+name+".scope":
		case m == nil:
			return true
		case slices.Contains(ids, m[1]):
		case len(ids) == 0 && containerID.MatchString(name) && strings.HasPrefix(m[1], name):
			res.Subject.ID = m[1][:max(shortID, len(name))]
		default:
			return true
		}
		dirs = append(dirs, dir)
		return true
	})
	if err != nil {
		return Resolved{}, fmt.Errorf("search %s for container %s: %w", root, name, err)
	}
	dirs = outermost(dirs)
	if own := madeByOwner(root, dirs); len(own) > 0 || len(ids) > 0 || r.engineHas(name) {
		dirs = own
	}
	switch {
	case len(dirs) == 1:
		return res.at(dirs[0])
	case len(dirs) > 1 || len(ids) > 1:
		return Resolved{}, &api.Error{
			Code:    api.CodeConflict,
			Message: fmt.Sprintf("%d containers are called %s", max(len(dirs), len(ids)), name),
			Hint:    "give more of its id, as docker ps --no-trunc or podman ps --no-trunc prints it",
		}
	case len(ids) == 1:
		return res, nil // the container does not run
	}
	return Resolved{}, notFound("no container is called "+name, "docker ps, podman ps, or systemd-cgls")
}

// madeByOwner returns the folders that no user can have made, because users name their own folders as they like. Such
// a folder and all its ancestors belong to the owner of the root folder, and none of the ancestors is a container.
func madeByOwner(root string, dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		for at := dir; at != root; at = filepath.Dir(at) {
			if !sameOwner(root, at) || at != dir && isContainer(filepath.Base(at)) {
				return true
			}
		}
		return false
	})
}

func isContainer(base string) bool {
	return containerCgroup.MatchString(base) || strings.HasPrefix(base, "lxc.payload.") || strings.HasPrefix(base, "machine-")
}

// sameOwner reports whether two folders belong to the same user. A missing folder belongs to nobody.
func sameOwner(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Lstat(a, &x) == nil && unix.Lstat(b, &y) == nil && x.Uid == y.Uid
}

// outermost leaves out folders that are below another: some engines make a
// container's cgroup twice, one in the other.
func outermost(dirs []string) []string {
	slices.Sort(dirs)
	var out []string
	for _, dir := range dirs {
		if len(out) == 0 || !strings.HasPrefix(dir, out[len(out)-1]+"/") {
			out = append(out, dir)
		}
	}
	return out
}

// containersNamed finds the ids of containers with this name in the lists of the machine's
// engines. A user's own containers are known by id
// alone, because users choose names freely.
func (r *Resolver) containersNamed(name string) []string {
	var ids []string
	for id, names := range r.containerNames() {
		if slices.Contains(names, name) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// engineHas reports whether a list of the machine's engines has a container whose id begins with this text.
func (r *Resolver) engineHas(id string) bool {
	if !containerID.MatchString(id) {
		return false
	}
	return len(r.lists("docker/containers/"+id+"*")) > 0 || slices.ContainsFunc(r.podmanStores(), func(store string) bool {
		return slices.ContainsFunc(podmanStore(store), func(c podmanContainer) bool { return strings.HasPrefix(c.ID, id) })
	})
}

// lists returns the files below the engines' folder that a pattern matches. The pattern is always
// valid, because a container's name has no special characters of patterns.
func (r *Resolver) lists(pattern string) []string {
	files, _ := filepath.Glob(filepath.Join(r.varLib, pattern))
	return files
}

// containerNames returns the names in the lists of the machine's engines, by
// the containers' ids.
func (r *Resolver) containerNames() map[string][]string {
	names := make(map[string][]string)
	for _, file := range r.lists("docker/containers/*/config.v2.json") {
		if id, name := dockerName(file); id != "" {
			names[id] = append(names[id], name)
		}
	}
	for _, list := range r.engineLists() {
		for id, of := range list {
			names[id] = append(names[id], of...)
		}
	}
	return names
}

// namesOf returns the names of one container from containerNames.
func (r *Resolver) namesOf(id string) (names []string) {
	if own, name := dockerName(filepath.Join(r.varLib, "docker/containers", id, "config.v2.json")); own == id && id != "" {
		names = append(names, name)
	}
	for _, list := range r.engineLists() {
		names = append(names, list[id]...)
	}
	return names
}

// dockerName reads Docker's file about a container. The id is "" if the file goes meanwhile, or is being written.
func dockerName(file string) (id, name string) {
	var c struct{ ID, Name string }
	if readJSON(file, &c) != nil {
		return "", ""
	}
	return c.ID, strings.TrimPrefix(c.Name, "/")
}

type podmanContainer struct {
	ID    string
	Names []string
}

// podmanStore reads Podman's store. The list is empty if the store goes meanwhile, is being written, or has another
// layout.
func podmanStore(path string) (list []podmanContainer) {
	if readJSON(path, &list) != nil {
		return nil
	}
	return list
}

func (r *Resolver) podmanStores() []string {
	return r.lists("containers/storage/*-containers/*containers.json")
}

func readJSON(file string, to any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
