package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// adaptationHost is what adaptation needs from the daemon. The lock of its table is taken before d.mu and after that of
// the rules. These methods therefore take d.mu, and nothing calls the table under d.mu.
type adaptationHost struct{ *Daemon }

var _ adaptation.Host = adaptationHost{}

func (d *Daemon) adaptationPath() string { return filepath.Join(d.opts.StateDir, adaptation.FileName) }

// Save implements adaptation.Host.
func (h adaptationHost) Save(isEmpty bool, content *adaptation.Saved) {
	h.files.SaveObject(h.adaptationPath(), isEmpty, content)
}

// Load implements adaptation.Host.
func (h adaptationHost) Load(content *adaptation.Saved) (found bool, err error) {
	return h.files.LoadObject(h.adaptationPath(), adaptation.StateVersion, content)
}

// Unwritten implements adaptation.Host.
func (h adaptationHost) Unwritten(lifts bool) []string {
	return h.unwrittenWarnings(h.adaptationPath(), lifts)
}

// SetLimit implements adaptation.Host.
func (h adaptationHost) SetLimit(ctx context.Context, to api.Subject, bytesPerSec uint64, met bool) error {
	req := api.SetRequest{Subject: to, Wish: api.Wish{UpBytesPerSec: &bytesPerSec}}
	_, err := h.carry(ctx, h.destinations.Set(auth.Actor{}, req, met))
	return err
}

// LiftLimit implements adaptation.Host.
func (h adaptationHost) LiftLimit(ctx context.Context, to api.Subject) error {
	_, err := h.Remove(ctx, auth.Actor{}, to, false)
	var known *api.Error
	if errors.As(err, &known) && (known.Code == api.CodeNoLimit || known.Code == api.CodeNotFound) {
		return nil
	}
	return err
}

// LimitOn implements adaptation.Host.
func (h adaptationHost) LimitOn(to api.Subject) (node uint32, bytesPerSec uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.limiting(to); n != nil {
		return n.id, n.Requested[enforce.OwnerAdmin].Up, true
	}
	return 0, 0, false
}

// limiting returns the node of the administrator's limit on what is sent to a destination, nil if there is none. The
// caller holds d.mu.
func (d *Daemon) limiting(to api.Subject) *node {
	for _, n := range d.nodes.WithSubject(to) {
		if n.Requested[enforce.OwnerAdmin].Up != 0 {
			return n
		}
	}
	return nil
}

// SetRate implements adaptation.Host.
func (h adaptationHost) SetRate(id uint32, to api.Subject, bytesPerSec uint64, write bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes.Get(id)
	if n == nil || n.res.Subject != to || n.Requested[enforce.OwnerAdmin].Up == 0 {
		return adaptation.ErrLifted
	}
	if h.isDown {
		return nil
	}
	before := n.Requested[enforce.OwnerAdmin].Up
	n.Requested[enforce.OwnerAdmin].Up = bytesPerSec
	if err := h.apply(n); err != nil {
		n.Requested[enforce.OwnerAdmin].Up = before
		return err
	}
	if write {
		h.writeChange(n.lasting(), n.change())
	}
	return nil
}

// BoundBacklog implements adaptation.Host.
func (h adaptationHost) BoundBacklog(to api.Subject, ns uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.limiting(to)
	if n == nil || n.BacklogNS == ns || h.isDown {
		return nil
	}
	before := n.BacklogNS
	n.BacklogNS = ns
	if err := h.apply(n); err != nil {
		n.BacklogNS = before
		return fmt.Errorf("bound what waits: %w", err)
	}
	return nil
}

// LookUp implements adaptation.Host.
func (h adaptationHost) LookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	known, err := h.names.LookUp(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	return known[name].Addresses, nil
}

// takeOverAdaptation follows the hosts and areas of an earlier daemon. The file of the limits says which hosts nobody
// has named, if limitsSayMet. If an earlier release has written that file, the file of adaptation says so.
func (d *Daemon) takeOverAdaptation(limitsSayMet bool) error {
	met, err := d.adaptation.Adopt()
	_, damaged := d.files.Damage(d.adaptationPath())
	switch {
	case limitsSayMet:
	case damaged:
		d.noteMayBeMet()
	default:
		d.noteMet(met)
	}
	return err
}

// noteMet notes that limits on what is sent to hosts exist only because the hosts received traffic.
func (d *Daemon) noteMet(hosts []api.Subject) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, to := range hosts {
		if n := d.limiting(to); n != nil && n.to != nil {
			n.to.met = true
			d.file.Outdate()
			d.touch(n)
		}
	}
}

// noteMayBeMet notes the same of each limit on one host, if no record says whether somebody has named the host.
func (d *Daemon) noteMayBeMet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.nodes.All() {
		if n.to == nil || n.IsOnlyUsers() || n.to.scope != nil {
			continue
		}
		if s := n.to.selector; len(s.Prefixes) == 1 && s.Prefixes[0].IsSingleIP() && len(s.Names) == 0 && s.List == "" {
			n.to.met = true
			d.file.Outdate()
			d.touch(n)
		}
	}
}

// SetAdapt implements apiserver.Backend.
func (d *Daemon) SetAdapt(ctx context.Context, by auth.Actor, req api.AdaptRequest) (api.AdaptList, error) {
	return d.adaptation.Set(ctx, by, req)
}

// Adapted implements apiserver.Backend.
func (d *Daemon) Adapted(_ context.Context, by auth.Actor) (api.AdaptList, error) {
	return d.adaptation.List(by), nil
}
