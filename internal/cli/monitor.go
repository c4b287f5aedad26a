package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

// These constants say how long the command looks for another daemon that may replace one that has left.
const (
	monitorPatience = 15 * time.Second
	monitorPause    = 200 * time.Millisecond
)

func (a *App) monitor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "monitor [--json]",
		Short: "Print what happens: limits and powers set and gone, rules, queues, drops",
		Long: `Print events as they happen, until interrupted or until nobody reads them: limits that are set, changed,
lifted, and that end with their subject; shares of the processors likewise; rules that match and files of rules that
are read; queues that are made and let go of; the beginning of drops; the daemon's
leaving. With --json one object a line, as the API has it.

Users are told what concerns their processes, themselves, the host and the daemon,
root everything. A reader that is too slow is told how many events it has missed.
When the daemon leaves, the next one is waited for, 15 seconds at most.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			ctx, done := a.untilReaderGone(ctx)
			defer done()
			err := a.follow(ctx, func(e api.Event) error { return a.printEvent(e, asJSON) })
			if ctx.Err() != nil {
				return nil
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// follow calls got for each event of one daemon after the other.
func (a *App) follow(ctx context.Context, got func(api.Event) error) error {
	c := client.New(a.socket)
	defer c.Close()
	heard, refused := false, time.Duration(0)
	for {
		err := c.Events(ctx, func(e api.Event) error {
			heard, refused = true, 0
			return got(e)
		})
		switch {
		case heard && refused < monitorPatience/monitorPause && isCode(err, api.CodeConflict): // it is about to leave
			refused++
			time.Sleep(monitorPause)
		case !errors.Is(err, client.ErrNoDaemon):
			return err
		case !heard:
			return a.nobody(ctx, err)
		}
		for end := time.Now().Add(monitorPatience); !a.answers(ctx, c); {
			if time.Now().After(end) || ctx.Err() != nil {
				return a.nobody(ctx, err)
			}
			time.Sleep(monitorPause)
		}
	}
}

func (a *App) answers(ctx context.Context, c *client.Client) bool {
	_, err := c.Status(ctx)
	return err == nil
}

func (a *App) printEvent(e api.Event, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(a.Out).Encode(e); err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		return nil
	}
	if _, err := fmt.Fprintf(a.Out, "%s  %s\n", e.Time.Local().Format(time.TimeOnly), a.paint(eventColour(e.Type), a.eventText(e))); err != nil {
		return fmt.Errorf("print an event: %w", err)
	}
	return nil
}

// eventColour returns the colour that marks an unusual event, "" for a usual one.
func eventColour(kind api.EventType) string {
	switch kind {
	case api.EventLimitFailed, api.EventRulesRefused:
		return red
	case api.EventDropsBegan, api.EventMissed:
		return yellow
	}
	return ""
}

// eventText describes an event in a line.
func (a *App) eventText(e api.Event) string {
	subject := eventSubject(e)
	by := ""
	if e.By != "" {
		by = ", by " + printable(e.By)
	}
	switch e.Type {
	case api.EventHello:
		text := fmt.Sprintf("listening to the daemon, pid %d", e.PID)
		if e.Adopted+e.SetAgain > 0 {
			text += fmt.Sprintf("; it has taken over %s and set %d again", count(e.Adopted, "limit"), e.SetAgain)
		}
		return text
	case api.EventLimitSet, api.EventLimitChanged, api.EventLimitLifted, api.EventLimitEnded, api.EventLimitFailed, api.EventNameChanged:
		return a.limitEventText(e, subject, by)
	case api.EventRuleMatched, api.EventRulesRead, api.EventRulesRefused:
		return ruleEventText(e, subject)
	case api.EventQueueMade:
		return fmt.Sprintf("queue made     %s, in network namespace %d", printable(string(e.Direction)), e.Netns)
	case api.EventQueueGone:
		return fmt.Sprintf("queue gone     %s, in network namespace %d", printable(string(e.Direction)), e.Netns)
	case api.EventDropsBegan:
		var u api.Usage
		if e.Drops != nil {
			u = api.Usage{Dropped: e.Drops.QueueFull + e.Drops.NoQueue + e.Drops.Ahead, DroppedFor: *e.Drops}
		}
		return fmt.Sprintf("drops begin    %s %s: %s", subject, printable(string(e.Direction)), dropText(u))
	case api.EventPowerSet, api.EventPowerChanged, api.EventPowerLifted, api.EventPowerEnded:
		return a.powerEventText(e, subject, by)
	case api.EventDaemonLeaves:
		if e.LimitsStay {
			return "daemon leaves  the limits stay in force"
		}
		return "daemon leaves  no limit is in force"
	case api.EventMissed:
		return fmt.Sprintf("missed         %s: this reader was too slow", count(int(e.Count), "event"))
	}
	return strings.TrimSpace(printable(string(e.Type)) + " " + subject)
}

// eventSubject names the subject of an event, "" if it has none.
func eventSubject(e api.Event) string {
	if e.Subject == nil {
		return ""
	}
	text := printable(e.Subject.String())
	if e.Name != "" && e.Name != e.Subject.ID && e.Name != string(e.Subject.Kind) {
		text += " (" + printable(e.Name) + ")"
	}
	return text
}

// limitEventText describes a change of a limit.
func (a *App) limitEventText(e api.Event, subject, by string) string {
	limits := a.nodeText(&api.Node{Limits: e.Limits})
	switch e.Type {
	case api.EventLimitSet:
		text := fmt.Sprintf("limit set      %s: %s%s", subject, limits, by)
		if e.Processes+e.Sockets > 0 {
			text += fmt.Sprintf("; %s and %s obey", count(e.Processes, "process"), count(e.Sockets, "socket"))
		}
		return text
	case api.EventLimitChanged:
		return fmt.Sprintf("limit changed  %s: %s%s", subject, limits, by)
	case api.EventLimitLifted:
		return fmt.Sprintf("limit lifted   %s: it was %s%s", subject, limits, by)
	case api.EventLimitEnded:
		return fmt.Sprintf("limit ended    %s: it is gone", subject)
	case api.EventLimitFailed:
		return fmt.Sprintf("limit fails    %s: %s", subject, printable(e.Message))
	}
	return fmt.Sprintf("name changed   %s: %s", subject, printable(e.Message))
}

// ruleEventText describes what happened to rules, or by them.
func ruleEventText(e api.Event, subject string) string {
	switch e.Type {
	case api.EventRulesRead:
		return fmt.Sprintf("rules read     of %s: %s", printable(e.Owner), count(int(e.Count), "rule"))
	case api.EventRulesRefused:
		return fmt.Sprintf("rules refused  of %s: %s; those from before stay (netnice rules list)", printable(e.Owner), count(len(e.Problems), "mistake"))
	}
	var names []string
	for _, r := range e.Rules {
		names = append(names, fmt.Sprintf("%s (%s:%d)", printable(r.Name), printable(r.File), r.Line))
	}
	return fmt.Sprintf("rule matched   %s: %s, which runs %s", subject, strings.Join(names, ", "), printable(e.Program))
}

// powerEventText describes a change of a share of the processors.
func (a *App) powerEventText(e api.Event, who, by string) string {
	power := "?"
	if e.Power != nil {
		power = a.powerText(e.Power)
	}
	switch e.Type {
	case api.EventPowerSet:
		return fmt.Sprintf("power set      %s: %s%s", who, power, by)
	case api.EventPowerChanged:
		return fmt.Sprintf("power changed  %s: %s%s", who, power, by)
	case api.EventPowerLifted:
		return fmt.Sprintf("power lifted   %s: it was %s%s", who, power, by)
	}
	why := "it is gone"
	if e.Message != "" {
		why = printable(e.Message)
	}
	return fmt.Sprintf("power ended    %s: %s", who, why)
}
