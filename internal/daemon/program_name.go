package daemon

import (
	"cmp"
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// People know a process tree by the program that its first process runs. At the time of the command that name may still
// be another one: `netnice run` asks for its limit before it becomes the command, and is called netnice until then. An
// ended process has no name to read, so the daemon notes names while the process runs.

const (
	// nameAfter is the delay after a new limit until the daemon reads the name of its program: netnice run has become
	// the command within that time. Each tick reads names, too; nodes older than youngFor wait for it.
	nameAfter = 50 * time.Millisecond
	youngFor  = time.Second
	// mostNamesATick bounds the cost of 10,000 limits: reading one name takes some 20 us.
	mostNamesATick = 100
)

// rootProcess returns the process by which people know the node, and its start; 0 if there is none.
func (n *node) rootProcess() (pid int, startNS uint64) {
	switch {
	case n.scope != nil:
		return n.scope.PID, n.scope.StartNS
	case n.res.Kind == enforce.KindTree:
		return int(n.res.Key), n.res.StartBoottimeNS
	}
	return 0, 0
}

// programNow returns the name of the program that a process runs, or known if the process has ended.
func (d *Daemon) programNow(pid int, startNS uint64, known string) string {
	if name, ok := d.resolver.LastName(pid, startNS); ok {
		return name
	}
	return known
}

// learnProgram notes the name of the program that a node's first process runs, or ran last, also in the file. The
// caller holds d.mu.
func (d *Daemon) learnProgram(n *node) {
	pid, start := n.rootProcess()
	if pid == 0 {
		return
	}
	var name string
	if n.watch.HasEnded() {
		name = cmp.Or(n.watch.LastName(), n.res.Name)
	} else {
		name = d.programNow(pid, start, n.res.Name)
	}
	if name == n.res.Name {
		return
	}
	n.res.Name = name
	d.touch(n)
	d.writeChange(false, n.change())
}

// learnPrograms is learnProgram for nodes whose process has not ended and that are no older than upTo, 0 = of any age.
// It reads mostNamesATick names at most; the order of Go's maps chooses the nodes. It reports whether another reading
// is due before the next tick, as a program may not run yet.
func (d *Daemon) learnPrograms(upTo time.Duration) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return false
	}
	looked := 0
	for n := range d.nodes.All() {
		pid, _ := n.rootProcess()
		age := time.Since(n.since)
		if pid == 0 || upTo != 0 && age > upTo || n.watch.HasEnded() {
			continue
		}
		if looked++; looked > mostNamesATick {
			return true
		}
		again = again || age < nameAfter
		d.learnProgram(n)
	}
	return again
}

// programDue schedules a reading of the names of new nodes' and shares' programs.
func (d *Daemon) programDue() {
	select {
	case d.born <- struct{}{}:
	default: // a reading is due already
	}
}
