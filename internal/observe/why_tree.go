package observe

import (
	"context"
	"errors"
	"maps"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
)

// A program often leaves its connections to programs that it starts, as rsync does to ssh. So a question about a
// process includes its descendants.

// whyProcess is a process whose connections are measured.
type whyProcess struct {
	pid  int
	name string
	open map[uint64][]int // its sockets: inode to descriptors
}

// whyProcesses holds the processes of one measurement: the requested one, then its descendants, parents first.
type whyProcesses struct {
	list []whyProcess
	byID map[int]int // index by process id
	// owners maps an inode to an index. If several processes have the socket open, the first one counts, as descendants
	// inherit.
	owners map[uint64]int
	hidden int // descendants whose connections the caller may not see
}

// whyProcessesOf finds these processes. With a file descriptor it returns the process alone, with that socket.
func (o *Observer) whyProcessesOf(ctx context.Context, by auth.Actor, res identity.Resolved, fd int) (whyProcesses, error) {
	pid := int(res.Key)
	p := whyProcesses{byID: make(map[int]int), owners: make(map[uint64]int)}
	open, err := o.socketsOf(pid, fd)
	if err != nil {
		return p, err
	}
	p.add(whyProcess{pid: pid, name: res.Name, open: open})
	if fd >= 0 {
		return p, nil
	}
	tree, err := cpu.Tree(pid)
	if err != nil {
		return p, err
	}
	for _, child := range tree {
		if _, known := p.byID[child]; known {
			continue
		}
		res, err := o.whose(ctx, by, child)
		if errors.Is(err, auth.ErrDenied) {
			p.hidden++
			continue
		}
		if err != nil {
			continue // it has ended
		}
		if open, err := o.socketsOf(child, -1); err == nil { // otherwise it has ended, too
			p.add(whyProcess{pid: child, name: res.Name, open: open})
		}
	}
	return p, nil
}

func (p *whyProcesses) add(one whyProcess) {
	i := len(p.list)
	p.list = append(p.list, one)
	p.byID[one.pid] = i
	for inode := range one.open {
		if _, known := p.owners[inode]; !known {
			p.owners[inode] = i
		}
	}
}

// ownerOf returns the process that has a socket open, or that used it last if no process has.
func (p *whyProcesses) ownerOf(inode uint64, pid int) (whyProcess, bool) {
	i, found := p.owners[inode]
	if !found || inode == 0 {
		i, found = p.byID[pid]
	}
	if !found {
		return whyProcess{}, false
	}
	return p.list[i], true
}

// api lists the processes in the form of the API.
func (p *whyProcesses) api() []api.WhyProcess {
	list := make([]api.WhyProcess, len(p.list))
	for i, one := range p.list {
		list[i] = api.WhyProcess{PID: one.pid, Name: one.name}
	}
	return list
}

// packetSockets returns the inodes of the packet sockets in their network namespaces.
func (p *whyProcesses) packetSockets(r *identity.Resolver) map[uint64]bool {
	all := make(map[uint64]bool)
	for _, pid := range p.onePerNamespace() {
		maps.Copy(all, r.PacketSockets(pid))
	}
	return all
}

// onePerNamespace returns one process in each network namespace of the processes, and those whose namespace is not
// known.
func (p *whyProcesses) onePerNamespace() (pids []int) {
	seen := make(map[uint32]bool)
	for _, one := range p.list {
		ns, err := netnamespace.Of(strconv.Itoa(one.pid))
		if err == nil && seen[ns] {
			continue
		}
		seen[ns] = true
		pids = append(pids, one.pid)
	}
	return pids
}
