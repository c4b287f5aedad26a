package adaptation

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/shell"
)

// end stops following the paths to a host, and lifts their limits.
func (t *Table) end(ctx context.Context, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	address, _ := netip.ParseAddr(req.Host)
	meant := func(a *entry) bool { return a.Host == req.Host || a.Address == address.Unmap() }
	var from []uint32
	for key, a := range t.list {
		if meant(a) {
			from = append(from, key.netns)
		}
	}
	netns, err := meantNamespace(req, from)
	if err != nil {
		return answer, err
	}
	for key, a := range t.list {
		if !meant(a) || key.netns != netns {
			continue
		}
		answer.Changed, answer.Adapted = true, append(answer.Adapted, a.api())
		if req.DryRun {
			continue
		}
		if t.halt(a); t.list[key] != a {
			continue // another request has begun with the host again, or ended it
		}
		if err := t.host.LiftLimit(ctx, a.subject()); err != nil {
			t.wakeUp()
			return answer, err
		}
		delete(t.list, key)
		t.log.Info("limit follows a path no more", "host", a.Host, "address", a.Address.String())
	}
	if req.DryRun {
		return answer, nil
	}
	t.save()
	answer.Warnings = append(answer.Warnings, t.host.Unwritten(true)...)
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
