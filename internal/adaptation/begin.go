package adaptation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
	"github.com/netnice/netnice/internal/netnamespace"
)

// beginPatience is for one address. The first answer takes at most eight seconds, with a reflector twice that. The train
// and the pairs after it each wait for twice a round trip.
const beginPatience = time.Minute

// namespacePath returns the file of a network namespace, "" for the daemon's own.
func namespacePath(netns uint32) (string, error) {
	if netns == 0 {
		return "", nil
	}
	path := netnamespace.PathOf(netns)
	if path == "" {
		return "", &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no network namespace %d is found", netns), Hint: "a process has to be in it, or it has to have a name: ip netns"}
	}
	return path, nil
}

// open opens the path to an address.
func (t *Table) open(ctx context.Context, a *entry) (hostpath.Path, error) {
	namespace, err := namespacePath(a.Netns)
	if err != nil {
		return nil, err
	}
	return t.openPath(ctx, hostpath.Config{To: a.Address, Port: a.ReflectorPort, Namespace: namespace, Prepare: t.kernel.Probes})
}

// beginSoon is begin with a bound on the time that it takes.
func (t *Table) beginSoon(ctx context.Context, a *entry) error {
	ctx, cancel := context.WithTimeout(ctx, beginPatience)
	defer cancel()
	return t.begin(ctx, a)
}

// begin measures the path, sets the limit, and has the path followed. If the path is followed already, that
// continues with the new parameters.
func (t *Table) begin(ctx context.Context, a *entry) error {
	path, err := t.open(ctx, a)
	if err != nil {
		return err
	}
	rate, err := t.firstRate(ctx, a, path)
	if err != nil {
		return errors.Join(err, path.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.makeWay(ctx, a); err != nil {
		return errors.Join(err, path.Close())
	}
	if err := t.host.SetLimit(ctx, a.subject(), rate, a.Area != ""); err != nil {
		delete(t.list, a.key())
		t.save()
		return errors.Join(err, path.Close())
	}
	if err := t.host.BoundBacklog(a.subject(), a.BacklogNS); err != nil {
		delete(t.list, a.key())
		t.save()
		return errors.Join(err, t.host.LiftLimit(ctx, a.subject()), path.Close())
	}
	t.holdQueue(a)
	a.path, a.state = path, adapt.State{Mode: adapt.ModeDelay, Rate: float64(rate)}
	t.list[a.key()] = a
	t.save()
	t.log.Info("limit follows a path", "host", a.Host, "address", a.Address.String(), "by", path.Kind(), "start", rate)
	t.wakeUp()
	return nil
}

// makeWay ends what has followed the path so far. It refuses a path that may not be followed. The caller holds t.mu,
// which is released while the former entry ends. Another request may begin with the host meanwhile, and is replaced, too.
func (t *Table) makeWay(ctx context.Context, a *entry) error {
	var halted *entry
	for {
		old := t.list[a.key()]
		if err := t.mayFollow(a, old); err != nil {
			return err
		}
		if old == nil {
			return nil
		}
		if old == halted {
			break
		}
		t.halt(old)
		halted = old
	}
	if halted.subject() == a.subject() {
		return nil
	}
	return t.host.LiftLimit(ctx, halted.subject())
}

// mayFollow refuses a path that may not be followed now; old is the host's present entry, nil if it has none. The caller
// holds t.mu.
func (t *Table) mayFollow(a, old *entry) error {
	other, elsewhere := t.followedElsewhere(a)
	switch {
	case t.refuse != nil:
		return t.refuse
	case a.Area != "" && t.areas[areaKey{a.Area, a.Netns}] == nil:
		return fmt.Errorf("%s is not followed any more", a.Area)
	case elsewhere:
		return &api.Error{
			Code: api.CodeConflict, Message: fmt.Sprintf("the path to %s is followed from another network namespace, and limits on a destination are for all who send there", a.Address),
			Hint: "end that first: netnice adapt " + fromNamespace(a.Address.String(), other) + " off",
		}
	case old == nil && len(t.list) >= mostHosts:
		return full("as many hosts are followed", mostHosts)
	}
	return nil
}

// followedElsewhere returns the other network namespace from which an address is followed. The address has one limit,
// so only one path to it can be followed.
func (t *Table) followedElsewhere(a *entry) (netns uint32, ok bool) {
	for key := range t.list {
		if key.address == a.Address && key.netns != a.Netns {
			return key.netns, true
		}
	}
	return 0, false
}
