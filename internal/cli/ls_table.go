package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
	"github.com/netnice/netnice/internal/wrap"
)

// listed is a row of ls: a node, a process that has a share of the processors and no limit, or the traffic of
// which no process is known.
type listed struct {
	subject, name string
	node          *api.Node    // nil for the other two
	power         *api.Power   // nil = none
	unknown       *api.Unknown // nil for the other two
	receives      bool         // unknown counts received traffic, too
}

// listColumn is a column of ls, with a function that returns its text for a row.
type listColumn struct {
	column
	cell func(r listed) string
}

const (
	noFigure = "-"
	// widest is a volume or a rate with the longest text: 9.99 MB, 79.9 Mbit.
	widest     = 9_990_000
	shareWidth = len("1234.5%")
)

// tree prints nodes as ls does, no line wider than width (0 = any).
func (a *App) tree(list *api.NodeList, width int) string {
	if len(list.Nodes)+len(list.Powers) == 0 {
		return "no limits\n"
	}
	rows := a.listRows(list)
	t := table{rows: make([][]string, len(rows))}
	for _, c := range a.listColumns(list) {
		t.columns = append(t.columns, c.column)
		for i, r := range rows {
			t.rows[i] = append(t.rows[i], c.cell(r))
		}
	}
	return t.render(width) + wholeText(list.Nodes, width)
}

// wholeText says which nodes have sockets without room for state.
func wholeText(nodes []api.Node, width int) (text string) {
	for _, n := range nodes {
		who := "PID"
		if n.Subject.Kind == api.KindPID {
			who = n.Subject.ID
		}
		if n.StatelessSockets > 0 {
			what := fmt.Sprintf("limited as a whole: %s without room for state, see netnice why %s", count(n.StatelessSockets, "socket"), who)
			text += wrap.Hanging(printable(n.Subject.String())+" ", printable(what), width)
		}
	}
	return text
}

// listRows returns the nodes as a tree, then the processes that have only a CPU share, then the traffic without a known
// process.
func (a *App) listRows(list *api.NodeList) (rows []listed) {
	powers := powersByProcess(list.Powers)
	for _, branch := range branches(list.Nodes, unicodeLocale(a.Getenv)) {
		subject := branch.node.Subject.String()
		rows = append(rows, listed{subject: branch.prefix + printable(subject), name: ownName(branch.node), node: branch.node, power: powers[subject]})
		delete(powers, subject)
	}
	for i := range list.Powers {
		p := &list.Powers[i]
		if subject := pidSubject(p.PID).String(); powers[subject] != nil { // else the process has a row already
			rows = append(rows, listed{subject: subject, name: printable(p.Name), power: p})
		}
	}
	if list.Unknown.Up.Bytes > 0 || list.Unknown.Down.Bytes > 0 {
		rows = append(rows, listed{subject: "unknown", unknown: &list.Unknown, receives: slices.ContainsFunc(list.Nodes, func(n api.Node) bool {
			return n.Subject.Kind == api.KindHost && !n.Down.Uncounted
		})})
	}
	return rows
}

// listColumns returns the columns that the list needs. The choice of columns, and the width of those of figures, depend
// on limits and not on figures. For this reason the columns do not move while figures change.
func (a *App) listColumns(list *api.NodeList) []listColumn {
	columns := []listColumn{
		{column{title: "SUBJECT", elastic: true}, func(r listed) string { return r.subject }},
		{column{title: "NAME", drop: 3, elastic: true}, func(r listed) string { return r.name }},
		{column{title: "UP", right: true}, a.limitCell(api.Up)},
		{column{title: "DOWN", right: true}, a.limitCell(api.Down)},
	}
	if slices.ContainsFunc(list.Nodes, func(n api.Node) bool { return hasLimit(&n, api.Total) }) {
		columns = append(columns, listColumn{column{title: "TOTAL", right: true}, a.limitCell(api.Total)})
	}
	if slices.ContainsFunc(list.Nodes, func(n api.Node) bool { return a.alsoText(&n) != noFigure }) {
		columns = append(columns, listColumn{column{title: "ALSO", drop: 2, elastic: true}, a.alsoCell})
	}
	columns = append(columns, a.figureColumns()...)
	if len(list.Powers) > 0 {
		columns = append(columns,
			listColumn{column{title: "POWER", drop: 3, elastic: true}, a.powerCell},
			listColumn{column{title: "CPU", right: true, drop: 6, least: shareWidth}, cpuCell})
	}
	return columns
}

// figureColumns returns the columns of figures, each as wide as its figures may get.
func (a *App) figureColumns() []listColumn {
	rate := len(units.FormatRate(widest, a.units))
	volume := len(units.FormatBytes(widest, a.units))
	return []listColumn{
		{column{title: "SENT/s", right: true, drop: 1, least: rate}, a.rateCell(api.Up)},
		{column{title: "RECEIVED/s", right: true, drop: 1, least: rate}, a.rateCell(api.Down)},
		{column{title: "SENT", right: true, drop: 4, least: volume}, a.bytesCell(api.Up)},
		{column{title: "RECEIVED", right: true, drop: 4, least: volume}, a.bytesCell(api.Down)},
		{column{title: "WAITING", right: true, drop: 5, least: volume}, a.waitingCell},
		{column{title: "LONGEST", right: true, drop: 7}, longestCell},
		{column{title: "PROCS", right: true, drop: 8}, processesCell},
		{column{title: "SOCKS", right: true, drop: 9}, socketsCell},
	}
}

// hasLimit reports whether a node has a limit of a direction.
func hasLimit(n *api.Node, direction api.Direction) bool {
	return slices.ContainsFunc(n.Limits, func(l api.Limit) bool { return l.Direction == direction })
}

// limitCell returns the cells for the lowest limit of a direction.
func (a *App) limitCell(direction api.Direction) func(listed) string {
	return func(r listed) string {
		if r.node == nil {
			return noFigure
		}
		for _, l := range lowest(r.node.Limits) {
			if l.Direction == direction && l.LeftNS != 0 {
				return units.FormatRate(l.BytesPerSec, a.units) + " for " + units.FormatDuration(l.LeftNS)
			}
			if l.Direction == direction {
				return units.FormatRate(l.BytesPerSec, a.units)
			}
		}
		return noFigure
	}
}

func (a *App) alsoCell(r listed) string {
	if r.node == nil {
		return noFigure
	}
	return a.alsoText(r.node)
}

// alsoText returns the properties of a node other than rates, the rules that set its limits, and whether these are in
// force.
func (a *App) alsoText(n *api.Node) string {
	parts := a.properties(n)
	for _, l := range lowest(n.Limits) {
		if l.Rule != nil && !slices.Contains(parts, "rule "+printable(l.Rule.Name)) {
			parts = append(parts, "rule "+printable(l.Rule.Name))
		}
		if pending := "not in force yet"; !l.Enforced && !slices.Contains(parts, pending) {
			parts = append(parts, pending)
		}
	}
	switch {
	case len(parts) == 0 && n.Group != "" && len(n.Limits) == 0:
		return "its share"
	case len(parts) == 0:
		return noFigure
	}
	return strings.Join(parts, ", ")
}

// figures returns the figures of one direction. known is false where netnice does not count them.
func (r listed) figures(direction api.Direction) (rate, bytes uint64, known bool) {
	up := direction == api.Up
	switch {
	case r.node != nil && up:
		return r.node.Up.RateBytesPerSec, r.node.Up.Bytes, !r.node.Up.Uncounted
	case r.node != nil:
		return r.node.Down.RateBytesPerSec, r.node.Down.Bytes, !r.node.Down.Uncounted
	case r.unknown != nil && up:
		return r.unknown.Up.RateBytesPerSec, r.unknown.Up.Bytes, true
	case r.unknown != nil:
		return r.unknown.Down.RateBytesPerSec, r.unknown.Down.Bytes, r.receives || r.unknown.Down.Bytes > 0
	}
	return 0, 0, false
}

func (a *App) rateCell(direction api.Direction) func(listed) string {
	return func(r listed) string {
		if rate, _, known := r.figures(direction); known {
			return units.FormatRate(rate, a.units)
		}
		return noFigure
	}
}

func (a *App) bytesCell(direction api.Direction) func(listed) string {
	return func(r listed) string {
		if _, bytes, known := r.figures(direction); known {
			return units.FormatBytes(bytes, a.units)
		}
		return noFigure
	}
}

// waitingCell returns the backlog to be sent: that in sockets, or else that in the queue.
func (a *App) waitingCell(r listed) string {
	switch {
	case r.node == nil || r.node.Up.WaitingSockets == 0 && r.node.Up.QueuedBytes == 0:
		return noFigure
	case r.node.Up.WaitingSockets == 0:
		return units.FormatBytes(r.node.Up.QueuedBytes, a.units)
	}
	return units.FormatBytes(r.node.Up.WaitingBytes, a.units)
}

func longestCell(r listed) string {
	if r.node == nil || r.node.Up.WaitingSockets == 0 && r.node.Up.QueuedBytes == 0 {
		return noFigure
	}
	return units.FormatDuration(max(r.node.Up.WaitNS, r.node.Up.QueueNS))
}

func processesCell(r listed) string {
	switch {
	case r.node != nil:
		return strconv.Itoa(r.node.Processes)
	case r.power != nil:
		return strconv.Itoa(r.power.Processes)
	}
	return noFigure
}

func socketsCell(r listed) string {
	if r.node == nil {
		return noFigure
	}
	return strconv.Itoa(r.node.Sockets)
}

// powersByProcess returns shares of the processors by the subject that has them.
func powersByProcess(list []api.Power) map[string]*api.Power {
	powers := make(map[string]*api.Power, len(list))
	for i := range list {
		powers[pidSubject(list[i].PID).String()] = &list[i]
	}
	return powers
}

func (a *App) powerCell(r listed) string {
	if r.power == nil {
		return noFigure
	}
	return a.powerText(r.power)
}

func cpuCell(r listed) string {
	if r.power == nil {
		return noFigure
	}
	return usedText(r.power)
}
