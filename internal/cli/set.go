package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/shell"
)

func (a *App) set() *cobra.Command {
	var subject subjectFlags
	var wish wishFlags
	var span forFlag
	var asJSON, dryRun, persist, always, confirm bool
	cmd := &cobra.Command{
		Use:     "set SUBJECT [--up RATE] [--down RATE] [--total RATE] [--burst TIME] [--min RATE] [--min-down RATE] [--dscp MARK] [--weight N|--background|--interactive] [--loopback] [--input-meter=false] [--persist=false|--always] [--for TIME|--confirm] [--to PREFIX[:PORT]|--to-file FILE [--except PREFIX] [--protocol tcp|udp] [--each-peer]]",
		Short:   "Limit a process, a user, a cgroup, a unit, the host, or what they exchange with an address",
		Long:    "Set limits of a subject, also in the middle of its transfers. What is not named stays.\nFor processes of a name to come, too: --always. Other rules, such as for containers: netnice rules --help.\n\n" + subjectHelp + "\n\n" + rateHelp,
		Example: "  sudo netnice set --user bob --up 10MB/s --down 50MB/s\n  netnice set 4711 --up none\n  netnice set name:curl --down 1MB/s\n  sudo netnice set --user bob --to any --except 10.0.0.0/8 --down 5MB/s\n  sudo netnice set --to '[2001:db8::/32]:443' --total 20mbit",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if confirm && span.value != nil {
				return fail("netnice set SUBJECT --up 1MB/s --for 2m", "--confirm means --for 1m: give one of them")
			}
			if confirm {
				minute := uint64(confirmTime)
				span.value = &minute
			}
			if always && span.value != nil {
				return fail("netnice set name:curl --up 1MB/s --for 10m", "a rule has no end: give --for or --always")
			}
			if always {
				return a.alwaysSet(cmd, args, &subject, &wish, dryRun, asJSON)
			}
			s, err := subject.selection(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("persist") {
				wish.persist = &persist
			}
			w, err := wish.wish("netnice set " + shell.Word(s.title()) + " --up 10MB/s")
			if err != nil {
				return err
			}
			prefixes, err := a.prefixes(subject.to)
			if err != nil {
				return err
			}
			err = a.applyTo(cmd.Context(), s, api.SetRequest{Wish: w, ForNS: span.ns(), Prefixes: prefixes, DryRun: dryRun}, asJSON)
			switch {
			case err != nil || dryRun:
			case confirm:
				a.remindToConfirm(s)
			case span.value == nil:
				a.adviseToConfirm(s, w)
			}
			return err
		},
	}
	subject.add(a, cmd)
	wish.add(cmd)
	cmd.Flags().BoolVar(&persist, "persist", true, "in force again after a reboot, but for a process's; =false: not")
	span.add(cmd)
	cmd.Flags().BoolVar(&confirm, "confirm", false, "hold for a minute only, unless it is confirmed: netnice confirm")
	alwaysFlag(cmd, &always)
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// apply sends a requested limit and prints the result.
func (a *App) apply(ctx context.Context, request api.SetRequest, asJSON bool) error {
	response, err := a.send(ctx, request)
	switch {
	case err != nil:
		return err
	case response == nil:
		return nil // a dry run without a daemon; send has said all
	case asJSON:
		return writeJSON(a.Out, response)
	}
	a.changed(response, request.Subject, request.DryRun)
	return nil
}

// send makes the checks that need no daemon, and asks the daemon. A dry run starts no daemon, and then returns nil.
func (a *App) send(ctx context.Context, request api.SetRequest) (*api.SetResponse, error) {
	if _, err := a.present(request.Subject); err != nil {
		return nil, err
	}
	var response *api.SetResponse
	call := func(ctx context.Context, c *client.Client) error {
		answer, err := c.Set(ctx, request)
		if err == nil {
			response = answer
		}
		return err
	}
	if request.DryRun {
		err := a.rehearse(ctx, call, request.Subject)
		return response, err
	}
	flags := []string{flagOnDemand}
	if persist := request.Wish.Persist; persist != nil && *persist {
		flags = nil // the daemon stays, as the limit is to persist
	}
	err := a.writeStarting(ctx, flags, call)
	return response, err
}

// rehearse runs the call of a dry run. If no daemon answers, it only says that it would start one, because starting a
// daemon is a change.
func (a *App) rehearse(ctx context.Context, call func(context.Context, *client.Client) error, s api.Subject) error {
	err := a.read(ctx, call)
	if !errors.Is(err, client.ErrNoDaemon) {
		return err
	}
	if a.System.EUID() != 0 {
		return a.onlyRoot(err)
	}
	fmt.Fprintf(a.Out, "%s: would start a daemon, and ask it\n", printable(s.String()))
	return nil
}
