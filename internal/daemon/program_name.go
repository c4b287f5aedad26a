package daemon

import (
	"cmp"
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// People know a process tree by the program that its first process runs. At the time of the command that name may be
// another's: `netnice run` asks for its limit before it becomes the command, and is called netnice until then. Once the
// process has ended there is nobody to ask, so the daemon notes names while it runs.

const (
	// nameAfter is how long after a limit was set the name of its program is looked at: netnice run has become the
	// command by then. Each tick does so, too; nodes older than youngFor wait for it.
	nameAfter = 50 * time.Millisecond
	youngFor  = time.Second
	// mostNamesATick bounds what 10,000 limits cost: one look is some 20 us.
	mostNamesATick = 100
)

// rootProcess is the process that people know the node by, and its start; 0 if there is none.
func (n *node) rootProcess() (pid int, startNS uint64) {
	switch {
	case n.scope != nil:
		return n.scope.PID, n.scope.StartNS
	case n.res.Kind == enforce.KindTree:
		return int(n.res.Key), n.res.StartBoottimeNS
	}
	return 0, 0
}

// programNow is the name of the program that a process runs, or the one that is known of it if it has ended.
func (d *Daemon) programNow(pid int, startNS uint64, known string) string {
	if name, ok := d.resolver.LastName(pid, startNS); ok {
		return name
	}
	return known
}

// nodeName is what a node is called. The program changes with exec. What a command has limited to some
// addresses is called as whom it is under.
func (d *Daemon) nodeName(n *node) string {
	if n.to != nil && n.to.scope != nil {
		n = n.to.scope
	}
	if pid, start := n.rootProcess(); pid != 0 {
		return d.programNow(pid, start, n.res.Name)
	}
	return n.res.Name
}

// learnProgram notes the name of the program that a node's first process runs, or ran last, also in the file. The
// caller holds d.mu.
func (d *Daemon) learnProgram(n *node) {
	pid, start := n.rootProcess()
	if pid == 0 {
		return
	}
	var name string
	if n.watch.ended() {
		name = cmp.Or(n.watch.lastName, n.res.Name)
	} else {
		name = d.programNow(pid, start, n.res.Name)
	}
	if name == n.res.Name {
		return
	}
	n.res.Name = name
	d.writeChange(false, n.change())
}

// learnPrograms is learnProgram for nodes whose process has not ended and that are no older than upTo, 0 = of any age. It
// looks at mostNamesATick of them: which, the order of Go's maps says. It reports whether a look is due before the next
// tick, as a program may not run yet.
func (d *Daemon) learnPrograms(upTo time.Duration) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return false
	}
	looked := 0
	for _, n := range d.nodes {
		pid, _ := n.rootProcess()
		age := time.Since(n.since)
		if pid == 0 || upTo != 0 && age > upTo || n.watch.ended() {
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
