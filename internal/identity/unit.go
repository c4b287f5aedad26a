package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// unit resolves a systemd unit to its cgroup. A unit that systemd knows but
// that does not run resolves to a pending subject.
func (r *Resolver) unit(ctx context.Context, name string) (Resolved, error) {
	name = unitName(name)
	s := api.Subject{Kind: api.KindUnit, ID: name}
	if strings.ContainsRune(name, '/') {
		return Resolved{}, badSubject(s, "a unit's name has no slash", "systemctl list-units, or use --cgroup for a path")
	}
	root, err := r.CgroupRoot()
	if err != nil {
		return Resolved{}, err
	}
	res := Resolved{Subject: s, Kind: enforce.KindCgroup, Name: name}
	if r.systemd.Running() {
		rel, err := r.systemd.ControlGroup(ctx, name)
		switch {
		case err == nil && rel == "":
			return res, nil
		case err == nil:
			if rel = filepath.Join("/", rel); rel == "/" {
				return Resolved{}, badSubject(s, "its cgroup is the whole machine's", "sudo netnice set --host ...")
			}
			return res.at(filepath.Join(root, rel))
		case !errors.Is(err, ErrNotFound):
			return Resolved{}, fmt.Errorf("ask systemd about %s: %w", name, err)
		}
		// A user's own service manager may have it: look in the tree.
	}
	dirs, err := r.findUnitDirs(root, name)
	if err != nil {
		return Resolved{}, fmt.Errorf("search %s for %s: %w", root, name, err)
	}
	if own := madeByOwner(root, dirs); len(own) > 0 {
		dirs = own // users' own units of that name do not count
	}
	switch len(dirs) {
	case 0:
		return Resolved{}, notFound(fmt.Sprintf("no unit is called %s", name), "systemctl list-units, or systemd-cgls")
	case 1:
		return res.at(dirs[0])
	}
	return Resolved{}, &api.Error{
		Code:    api.CodeConflict,
		Message: fmt.Sprintf("%d units are called %s", len(dirs), name),
		Hint:    "name one of them: --cgroup " + strings.TrimPrefix(dirs[0], root),
	}
}

// Units lists the names of systemd units that have a cgroup now, sorted.
func (r *Resolver) Units() ([]string, error) {
	root, err := r.CgroupRoot()
	if err != nil {
		return nil, err
	}
	var names []string
	err = walkCgroups(root, func(dir string) bool {
		switch base := filepath.Base(dir); filepath.Ext(base) {
		case ".service", ".scope", ".slice":
			names = append(names, base)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("search %s for units: %w", root, err)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// at completes a unit with the folder of its cgroup.
func (r Resolved) at(dir string) (Resolved, error) {
	id, err := CgroupID(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil // stopped meanwhile
	}
	if err != nil {
		return Resolved{}, fmt.Errorf("resolve %s: %w", r.Subject, err)
	}
	r.Key, r.Dir = id, dir
	return r, nil
}

// Stays reports whether the cgroup that a unit or container was resolved to is there still, and no user has made it. A
// user's gives way to the machine's of the same name, which may come later.
func (r *Resolver) Stays(res Resolved) bool {
	key, err := CgroupID(res.Dir)
	if err != nil || key != res.Key {
		return false
	}
	root, err := r.CgroupRoot()
	return err != nil || !strings.HasPrefix(res.Dir, root+"/") || len(madeByOwner(root, []string{res.Dir})) == 1
}

// unitName adds the suffix that systemctl adds.
func unitName(name string) string {
	switch filepath.Ext(name) {
	case ".service", ".scope", ".slice", ".socket", ".mount", ".swap":
		return name
	}
	return name + ".service"
}

// InUnit reports whether a process is in the cgroup of a unit. proc is where procfs is; "" = /proc. A process that has
// ended is in none.
func InUnit(proc string, pid int, unit string) bool {
	cgroups, _ := os.ReadFile(filepath.Join(cmp.Or(proc, "/proc"), strconv.Itoa(pid), "cgroup"))
	return strings.Contains(string(cgroups), "/"+unit)
}
