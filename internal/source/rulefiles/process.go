package rulefiles

import (
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// running holds the facts of a running process. It reads the rarer ones only when a rule asks for them.
type running struct {
	resolver              *identity.Resolver
	pid, parent           int
	facts                 desired.Facts
	command, group, above bool // these facts are read
	inside                bool // the container is known
}

// readProcess reads the facts that nearly every rule asks for. It returns false if the process has ended, or runs no program.
func readProcess(r *identity.Resolver, pid int) (*running, bool) {
	p := &running{resolver: r, pid: pid}
	var err error
	if p.facts.Exe, p.facts.Comm, err = r.Program(pid); err != nil {
		return nil, false
	}
	if p.facts.User, p.parent, err = r.IDs(pid); err != nil {
		return nil, false
	}
	return p, true
}

// Program implements rules.Facts.
func (p *running) Program() rules.Program { return p.facts.Program() }

// UID implements rules.Facts.
func (p *running) UID() uint32 { return p.facts.User }

// Command implements rules.Facts. A command line that cannot be read any more is empty.
func (p *running) Command() string {
	if !p.command {
		p.command = true
		p.facts.CommandLine, _ = p.resolver.Command(p.pid)
	}
	return p.facts.CommandLine
}

// Cgroup implements rules.Facts.
func (p *running) Cgroup() string {
	if !p.group {
		p.group = true
		p.facts.Group, _ = p.resolver.ProcessCgroup(p.pid)
	}
	return p.facts.Group
}

// Parent implements rules.Facts.
func (p *running) Parent() rules.Program {
	if !p.above {
		p.above = true
		p.facts.ParentExe, p.facts.ParentComm, _ = p.resolver.Program(p.parent)
	}
	return p.facts.Parent()
}

// Container implements rules.Facts.
func (p *running) Container() rules.Container {
	if !p.inside {
		p.inside = true
		c := p.resolver.ContainerOf(p.Cgroup())
		p.facts.In = rules.Container{Names: c.Names, ID: c.ID}
	}
	return p.facts.In
}

// all reads all facts but the container, which only Container reads: an engine's file may hang.
func (p *running) all() *desired.Facts {
	p.Command()
	p.Cgroup()
	p.Parent()
	all := p.facts
	all.SystemGroup = p.resolver.SystemNamed(all.Group)
	return &all
}
