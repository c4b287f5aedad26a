package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
)

func (a *App) fair() *cobra.Command {
	var group string
	var asJSON, dryRun, leave bool
	var rates rateFlags
	cmd := &cobra.Command{
		Use:   "fair [--group NAME] [--leave | --up RATE] [--down RATE] [--total RATE] PID[=WEIGHT]...",
		Short: "Divide a limit among running processes, fairly or by weight",
		Long: `Put running processes into a group with a limit, of which each has, with its
descendants, an equal share, or by its weight (100 is the usual), whatever number
of processes and connections it has. What one does not use the others have at once.

More may join later: netnice fair --group NAME PID. Members leave by netnice fair
--leave PID, each with its descendants: what is around the group holds for them then,
and limits of their own stay. A member that has ended is none any more; the group ends
with its last one, or by netnice unset --group NAME. Without --group it is called
after the first process. Instead of PID name:PROGRAM stands for each process that runs that now; the
command says which of them are no members, and why.

` + rateHelp,
		Example: "  netnice fair --total 10MB/s 4711 4712 4713\n  netnice fair --total 1MB/s name:curl\n  netnice fair --group backups --up 20mbit 4711=300 4712 4713=1\n  netnice fair --leave 4712",
		RunE: func(cmd *cobra.Command, args []string) error {
			members, notes, err := a.members(cmd.Context(), args)
			if err != nil {
				return err
			}
			a.warn(notes)
			if leave {
				return a.leave(cmd.Context(), group, members, rates.wish(), dryRun, asJSON)
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
	cmd.ValidArgsFunction = a.completePID(true)
	flags := cmd.Flags()
	flags.StringVar(&group, "group", "", "`name` of the group, a new one or one that there is")
	_ = cmd.RegisterFlagCompletionFunc("group", a.completeValue(api.KindGroup))
	flags.BoolVar(&leave, "leave", false, "take the processes out of their group, or of the one with that name")
	rates.add(cmd, "they")
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// leave takes processes out of a group; "" = each process leaves the group that it is in.
func (a *App) leave(ctx context.Context, group string, members []api.Member, wish api.Wish, dryRun, asJSON bool) error {
	if wish != (api.Wish{}) {
		return fail("netnice fair --leave PID, and netnice fair --group NAME --up RATE", "--leave and a rate at once")
	}
	for _, m := range members {
		if m.Weight != 0 {
			return fail(fmt.Sprintf("netnice fair --leave %d", m.PID), "who leaves has no weight in the group")
		}
	}
	subject := api.Subject{Kind: api.KindGroup, ID: group}
	response, err := a.send(ctx, api.SetRequest{Subject: subject, Members: members, Leave: true, DryRun: dryRun})
	switch {
	case err != nil:
		return err
	case response == nil:
		return nil // a dry run without a daemon; send has said all
	case asJSON:
		return writeJSON(a.Out, response)
	}
	what := "has left"
	if dryRun {
		what = "would leave"
	}
	for _, m := range response.Left {
		fmt.Fprintf(a.Out, "%s: %s %s\n", pidSubject(m.PID), what, printable("group:"+m.Group))
	}
	a.warn(response.Warnings)
	return nil
}

// members reads PID or PID=WEIGHT, and the same with name:PROGRAM for each process that runs that. A process that is
// named twice is one member. The notes name the processes that were left out, with the reason.
func (a *App) members(ctx context.Context, words []string) (list []api.Member, notes []string, err error) {
	if len(words) == 0 {
		return nil, nil, fail("netnice fair --total 10MB/s 4711 4712", "no process given")
	}
	place := make(map[int]int) // index of a process in the list, by process id
	for _, word := range words {
		text, weight, err := cutWeight(word)
		if err != nil {
			return nil, nil, err
		}
		pids, leftOut, err := a.memberPIDs(ctx, text)
		if err != nil {
			return nil, nil, err
		}
		notes = append(notes, leftOut...)
		for _, pid := range pids {
			i, again := place[pid]
			if !again {
				place[pid] = len(list)
				list = append(list, api.Member{PID: pid, Weight: weight})
				continue
			}
			if weight != 0 && list[i].Weight != 0 && weight != list[i].Weight {
				return nil, nil, fail(fmt.Sprintf("such as netnice fair %d=%d", pid, weight), "process %d has two weights: %d and %d", pid, list[i].Weight, weight)
			}
			list[i].Weight = max(list[i].Weight, weight)
			notes = append(notes, fmt.Sprintf("process %d is named twice, and is one member", pid))
		}
	}
	return list, notes, nil
}

// cutWeight splits PROCESS=WEIGHT. The weight is 0 if the word has none.
func cutWeight(word string) (text string, weight uint32, err error) {
	text, weightText, weighed := strings.Cut(word, "=")
	if !weighed {
		return text, 0, nil
	}
	weight, err = parseWeight(weightText)
	if err == nil && weight == 0 {
		err = fail("write 1..10000; 100 is the usual", "weight %s of process %s is out of range", strconv.Quote(weightText), text)
	}
	return text, weight, err
}

// memberPIDs reads one process, or the processes of a name that do not descend from others of that name. The notes name
// the other processes of that name.
func (a *App) memberPIDs(ctx context.Context, word string) (pids []int, notes []string, err error) {
	program, is := strings.CutPrefix(word, string(kindName)+":")
	if !is {
		pid, err := a.onePID(ctx, word)
		return []int{pid}, nil, err
	}
	s, err := a.processesNamed(ctx, api.Subject{Kind: kindName, ID: program})
	if err != nil {
		return nil, nil, err
	}
	for _, subject := range s.subjects {
		pid, err := parsePID(subject.ID)
		if err != nil {
			return nil, nil, err
		}
		pids = append(pids, pid)
	}
	notes = s.leftOut()
	if n := len(s.inner); n > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d more inside are no members of their own: they have part in the share of the process that started them", s.pattern, n))
	}
	return pids, notes, nil
}
