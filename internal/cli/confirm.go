package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

// confirmTime is how long a limit with --confirm holds if nobody confirms it.
const confirmTime = time.Minute

func (a *App) confirm() *cobra.Command {
	var subject subjectFlags
	var asJSON, dryRun bool
	cmd := &cobra.Command{
		Use:   "confirm SUBJECT",
		Short: "Keep a limit that would end by itself",
		Long: `Keep what you have set on a subject with --confirm or --for until it is lifted.

netnice set --confirm sets a limit for a minute. Who limits the host over the network, and takes too
low a rate, may be unable to lift the limit: without a confirmation it then lifts itself.

` + subjectHelp,
		Example: "  sudo netnice set --host --up 1MB/s --confirm && sudo netnice confirm --host\n  netnice confirm 4711",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := subject.selection(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			one, err := s.only()
			if err != nil {
				return err
			}
			request, err := a.lasting(cmd.Context(), one)
			if err != nil {
				return err
			}
			request.DryRun = dryRun
			return a.apply(cmd.Context(), request, asJSON)
		},
	}
	subject.add(a, cmd)
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// lasting returns the request that sets the caller's limits for a time on a subject without an end.
func (a *App) lasting(ctx context.Context, s api.Subject) (api.SetRequest, error) {
	if _, err := a.present(s); err != nil {
		return api.SetRequest{}, err
	}
	list, err := a.nodesFor(ctx, s)
	if err != nil {
		return api.SetRequest{}, err
	}
	owner := api.OwnerAdmin
	if who := a.caller(ctx); !who.admin {
		owner = who.name()
	}
	for i := range list.Nodes {
		n := &list.Nodes[i]
		// A user may be named by number. The first node is then the user's own.
		if n.Subject != s && (i > 0 || s.Kind != api.KindUser || n.Subject.Kind != api.KindUser) {
			continue
		}
		request := api.SetRequest{Subject: n.Subject}
		for _, l := range n.Limits {
			if l.LeftNS == 0 || l.Owner != owner {
				continue
			}
			rate := l.BytesPerSec
			switch l.Direction {
			case api.Up:
				request.Wish.UpBytesPerSec = &rate
			case api.Down:
				request.Wish.DownBytesPerSec = &rate
			case api.Total:
				request.Wish.TotalBytesPerSec = &rate
			}
		}
		if request.Wish != (api.Wish{}) {
			return request, nil
		}
	}
	return api.SetRequest{}, &api.Error{
		Code:    api.CodeNoLimit,
		Message: fmt.Sprintf("no limit of yours on %s ends by itself", s),
		Hint:    "netnice show " + shell.Word(s.String()),
	}
}

// adviseToConfirm names --confirm to somebody who limits the host that they are logged in to over ssh. Too low a rate could
// keep them from lifting the limit.
func (a *App) adviseToConfirm(s *selection, w api.Wish) {
	sets := func(rate *uint64) bool { return rate != nil && *rate != 0 }
	if s.isPattern() || s.subjects[0].Kind != api.KindHost || !sets(w.UpBytesPerSec) && !sets(w.DownBytesPerSec) && !sets(w.TotalBytesPerSec) {
		return
	}
	if a.System.Inherited("SSH_CONNECTION") != "" {
		a.warn([]string{"you are logged in over ssh: with --confirm a limit on the host ends by itself after a minute, unless you confirm it"})
	}
}

// remindToConfirm tells how a limit is kept that ends by itself.
func (a *App) remindToConfirm(s *selection) {
	for _, subject := range s.subjects {
		a.warn([]string{fmt.Sprintf("it ends in %s unless you confirm it: netnice confirm %s", units.FormatDuration(uint64(confirmTime)), shell.Word(subject.String()))})
	}
}
