package daemon

import (
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/source/names"
)

// nameHost is what names need from the daemon. d.mu guards the answers: what calls the source's methods for these holds it.
type nameHost struct{ *Daemon }

var _ names.Host = nameHost{}

// Read implements names.Host.
func (h nameHost) Read(read func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	read()
}

// Update implements names.Host.
func (h nameHost) Update(change func(wanted map[string]bool) names.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[string]bool{}
	for n := range h.nodes.All() {
		if n.to == nil {
			continue
		}
		for _, name := range n.to.selector.Names {
			wanted[name] = true
		}
	}
	c := change(wanted)
	if !c.HasForgotten && c.Name == "" {
		return
	}
	if h.touchShared(); c.HasMoved {
		h.destinations.Outdate()
		h.destinations.Follow()
	}
	for _, n := range h.nodes.Sorted() {
		if n.to == nil || !slices.Contains(n.to.selector.Names, c.Name) {
			continue
		}
		n.to.names = h.names.Addresses(n.to.selector.Names)
		h.tellOf(n, api.EventNameChanged, c.Name+": "+c.Answer.String())
		h.writeChange(false, n.change())
	}
}
