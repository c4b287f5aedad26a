package identity

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Relay is a program by which an engine that runs without root (rootless Podman) hands over connections to a
// container's published ports. Inside the container's network namespace these connections come by its loopback device.
// Rootless Docker uses such a program only for containers that share the engine's own namespace. The connections of
// other containers come by their bridge.
type Relay struct {
	PID  int
	Name string
	// Local says that only connections of this machine's own programs go through the relay. The others come by a tap
	// device.
	Local bool
}

const pasta = "pasta"

// connectsInside reports whether a program of this name has a process in the container's network namespace for the
// connections. This process connects to 127.0.0.1 there, or to the container's own address. slirp4netns has no such
// process: its connections come by its tap device.
func connectsInside(name string) bool {
	switch name {
	case "rootlessport", "rootlesskit", "docker-proxy", "rootlesskit-docker-proxy":
		return true
	}
	return false
}

// LoopbackRelay finds the program that hands connections over by the loopback device to the processes in a cgroup and
// below it. These processes have to be in a network namespace that is not the machine's own. LoopbackRelay looks at all
// processes of the machine.
func (r *Resolver) LoopbackRelay(cgroup string) (Relay, bool) {
	members := r.cgroupMembers(cgroup)
	spaces := r.ownNamespaces(members)
	if len(spaces) == 0 {
		return Relay{}, false
	}
	all, err := r.proc.AllProcs()
	if err != nil {
		return Relay{}, false // the caller only loses a hint
	}
	for _, p := range all {
		if slices.Contains(members, p.PID) {
			continue // the cgroup's limit already counts its traffic outside
		}
		if relay, ok := r.relay(p.PID, spaces); ok {
			return relay, true
		}
	}
	return Relay{}, false
}

// relay reports whether a process hands connections over into one of these network namespaces. Spaces maps each
// namespace to a process in it.
func (r *Resolver) relay(pid int, spaces map[string]int) (Relay, bool) {
	file, comm, err := r.Program(pid)
	if err != nil {
		return Relay{}, false // the process has ended, or is a kernel thread
	}
	program := path.Base(file) // comm is "exe" for a program that has executed itself again
	if connectsInside(comm) || connectsInside(program) {
		_, there := spaces[r.netnsOf(pid)]
		return Relay{PID: pid, Name: program}, there
	}
	if !strings.HasPrefix(comm, pasta) && !strings.HasPrefix(program, pasta) { // it runs as pasta.avx2, too
		return Relay{}, false
	}
	command, err := r.Command(pid)
	words := strings.Fields(command)
	if err != nil || !publishes(words) {
		return Relay{}, false
	}
	return Relay{PID: pid, Name: pasta, Local: true}, r.pastaInto(pid, words[len(words)-1], spaces)
}

// pastaInto reports whether pasta connects one of these network namespaces. The last word of its command line is a
// process in the namespace, or a path. A path has a meaning only in its user's mount namespace, so then it counts that
// pasta and the namespace belong to the same user.
func (r *Resolver) pastaInto(pid int, last string, spaces map[string]int) bool {
	if into, err := strconv.Atoi(last); err == nil {
		_, there := spaces[r.netnsOf(into)]
		return there
	}
	uid, _, err := r.IDs(pid)
	if err != nil {
		return false
	}
	for _, member := range spaces {
		if r.mapsUser(member, uid) {
			return true
		}
	}
	return false
}

// publishes reports whether pasta's options leave it any port to hand over. Without an option for ports it hands over
// all.
func publishes(words []string) bool {
	if len(words) == 0 {
		return false
	}
	tcp, udp := true, true
	for i, word := range words {
		option, value, given := strings.Cut(word, "=")
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		switch option {
		case "-t", "--tcp-ports":
			tcp = value != "none"
		case "-u", "--udp-ports":
			udp = value != "none"
		}
	}
	return tcp || udp
}

// mapsUser reports whether a process is in a user namespace of a user other than root that maps the id uid.
func (r *Resolver) mapsUser(pid int, uid uint32) bool {
	text, err := readTrimmed(r.file(pid, "uid_map"))
	if err != nil {
		return false
	}
	mapped := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // first id inside, first outside, count
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		if first == 0 {
			return false // root's own engine
		}
		mapped = mapped || uint64(uid) >= first && uint64(uid) < first+count
	}
	return mapped
}

// cgroupMembers lists the processes in a cgroup and below it.
func (r *Resolver) cgroupMembers(dir string) (pids []int) {
	// A cgroup that goes away meanwhile has no members.
	_ = walkCgroups(dir, func(d string) bool {
		text, err := readTrimmed(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			return true
		}
		for line := range strings.Lines(text) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				pids = append(pids, pid)
			}
		}
		return true
	})
	return pids
}

// ownNamespaces returns the network namespaces of these processes, each with one of the processes. It leaves out the
// machine's own namespace.
func (r *Resolver) ownNamespaces(pids []int) map[string]int {
	spaces, host := make(map[string]int), r.netnsOf(1)
	for _, pid := range pids {
		if ns := r.netnsOf(pid); ns != "" && ns != host && spaces[ns] == 0 {
			spaces[ns] = pid
		}
	}
	return spaces
}

// netnsOf returns the network namespace of a process as /proc names it, "" if the process has ended.
func (r *Resolver) netnsOf(pid int) string {
	link, err := os.Readlink(r.file(pid, "ns/net"))
	if err != nil {
		return ""
	}
	return link
}
