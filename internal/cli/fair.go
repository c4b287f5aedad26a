package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
)

func (a *App) fair() *cobra.Command {
	var group string
	var asJSON, dryRun bool
	var rates rateFlags
	cmd := &cobra.Command{
		Use:   "fair [--group NAME] [--up RATE] [--down RATE] [--total RATE] PID[=WEIGHT]...",
		Short: "Divide a limit among running processes, fairly or by weight",
		Long: `Put running processes into a group with a limit, of which each has, with its
descendants, an equal share, or by its weight (100 is the usual), whatever number
of processes and connections it has. What one does not use the others have at once.

More may join later: netnice fair --group NAME PID. A member that has ended is none
any more; the group ends with its last one, or by netnice unset --group NAME. Without
--group it is called after the first process.

` + rateHelp,
		Example: "  netnice fair --total 10MB/s 4711 4712 4713\n  netnice fair --group backups --up 20mbit 4711=300 4712 4713=1",
		RunE: func(cmd *cobra.Command, args []string) error {
			members, err := parseMembers(args)
			if err != nil {
				return err
			}
			if group == "" {
				group = fmt.Sprintf("fair-%d", members[0].PID)
			}
			for _, m := range members {
				if _, err := a.present(pidSubject(m.PID)); err != nil {
					return err
				}
			}
			return a.apply(cmd.Context(), api.SetRequest{
				Subject: api.Subject{Kind: api.KindGroup, ID: group}, Members: members, DryRun: dryRun,
				Wish: rates.wish(),
			}, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&group, "group", "", "`name` of the group, a new one or one that there is")
	rates.add(cmd, "they")
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// parseMembers reads PID or PID=WEIGHT.
func parseMembers(words []string) (list []api.Member, err error) {
	if len(words) == 0 {
		return nil, fail("netnice fair --total 10MB/s 4711 4712", "no process given")
	}
	for _, word := range words {
		text, weightText, weighed := strings.Cut(word, "=")
		m := api.Member{}
		if m.PID, err = parsePID(text); err != nil {
			return nil, err
		}
		if weighed {
			if m.Weight, err = parseWeight(weightText); err != nil {
				return nil, err
			}
			if m.Weight == 0 {
				return nil, fail("write 1..10000; 100 is the usual", "weight %s of process %s is out of range", strconv.Quote(weightText), text)
			}
		}
		list = append(list, m)
	}
	return list, nil
}
