package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/shell"
)

// endAdapt stops following the paths to a host, and lifts their limits.
func (d *Daemon) endAdapt(ctx context.Context, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	address, _ := netip.ParseAddr(req.Host)
	meant := func(a *adapted) bool { return a.Host == req.Host || a.Address == address.Unmap() }
	var from []uint32
	for key, a := range d.adapts.list {
		if meant(a) {
			from = append(from, key.netns)
		}
	}
	netns, err := meantNamespace(req, from)
	if err != nil {
		return answer, err
	}
	for key, a := range d.adapts.list {
		if !meant(a) || key.netns != netns {
			continue
		}
		answer.Changed, answer.Adapted = true, append(answer.Adapted, a.api())
		if req.DryRun {
			continue
		}
		d.haltAdapt(a)
		if err := d.liftAdapt(ctx, a.subject()); err != nil {
			d.wakeAdapts()
			return answer, err
		}
		delete(d.adapts.list, key)
		d.log.Info("limit follows a path no more", "host", a.Host, "address", a.Address.String())
	}
	if req.DryRun {
		return answer, nil
	}
	d.saveAdapts()
	answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.adaptPath(), true)...)
	return answer, nil
}

// meantNamespace returns the network namespace in which a caller's request ends what follows a path. The parameter from
// lists the namespaces from which the path is followed. The caller's own namespace comes first, then the only one that
// there is.
func meantNamespace(req api.AdaptRequest, from []uint32) (uint32, error) {
	follows := "limit follows the path"
	if isArea(req.Host) {
		follows = "limits follow the paths"
	}
	slices.Sort(from)
	from = slices.Compact(from)
	switch {
	case slices.Contains(from, req.Netns):
		return req.Netns, nil
	case len(from) == 0 || req.NetnsNamed:
		return 0, &api.Error{Code: api.CodeNoLimit, Message: fmt.Sprintf("no %s to %s", follows, req.Host), Hint: "netnice adapt"}
	case len(from) > 1:
		var commands []string
		for _, netns := range from {
			commands = append(commands, "netnice adapt "+shell.Word(fromNamespace(req.Host, netns))+" off")
		}
		return 0, &api.Error{
			Code: api.CodeConflict, Message: fmt.Sprintf("%s is followed from %d other network namespaces, and none of them is named", req.Host, len(from)),
			Hint: strings.Join(commands, "\n"),
		}
	}
	return from[0], nil
}

// fromNamespace returns a host in the form in which commands name it with its network namespace; 0 = the daemon's.
func fromNamespace(host string, netns uint32) string {
	if netns == 0 {
		if home, err := netnamespace.Of("self"); err == nil {
			netns = home
		}
	}
	return fmt.Sprintf("%s@%d", host, netns)
}

// liftAdapt lifts the limit, if it is still there.
func (d *Daemon) liftAdapt(ctx context.Context, subject api.Subject) error {
	_, err := d.Remove(ctx, auth.Actor{}, subject, false)
	var known *api.Error
	if errors.As(err, &known) && (known.Code == api.CodeNoLimit || known.Code == api.CodeNotFound) {
		return nil
	}
	return err
}
