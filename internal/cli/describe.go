package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/units"
)

const (
	backgroundWeight = 1
	// interactiveWeight is the highest weight.
	interactiveWeight = limit.MaxWeight
	onePercent        = 10_000 // millionths
)

// printable replaces characters that could move a terminal's cursor. Any user can choose the names of processes and
// cgroups.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// lowest returns for each direction (up, down, total) the limit that holds among those of several owners.
func lowest(limits []api.Limit) []api.Limit {
	var out []api.Limit
	for _, direction := range []api.Direction{api.Up, api.Down, api.Total} {
		var best *api.Limit
		for i, l := range limits {
			if l.Direction == direction && l.BytesPerSec > 0 && (best == nil || l.BytesPerSec < best.BytesPerSec) {
				best = &limits[i]
			}
		}
		if best != nil {
			out = append(out, *best)
		}
	}
	return out
}

// rateText prints the rate and the direction of a limit: "10 MB/s up".
func (a *App) rateText(l api.Limit) string {
	text := units.FormatRate(l.BytesPerSec, a.units) + " " + printable(string(l.Direction))
	text += a.leftText(l)
	if !l.Enforced {
		text += " (not yet)"
	}
	return text
}

// leftText prints how long a limit for a time still holds, and the rate that holds again afterwards: " for 9m0s more, then
// 20 MB/s". It is empty for a limit without an end.
func (a *App) leftText(l api.Limit) string {
	if l.LeftNS == 0 {
		return ""
	}
	text := " for " + units.FormatDuration(l.LeftNS) + " more"
	if l.ThenBytesPerSec != 0 {
		text += ", then " + units.FormatRate(l.ThenBytesPerSec, a.units)
	}
	return text
}

// limitText prints one limit: "10 MB/s up", and the rule that has set it.
func (a *App) limitText(l api.Limit) string {
	text := a.rateText(l)
	if l.Rule != nil {
		text += " (rule " + printable(l.Rule.Name) + ")"
	}
	return text
}

// ownedText prints one limit and its owner: "10 MB/s up by bob".
func (a *App) ownedText(l api.Limit) string { return a.rateText(l) + " by " + setterText(l) }

// setterText names the rule that has set a limit, or else the owner of the limit.
func setterText(l api.Limit) string {
	switch {
	case l.Rule != nil:
		return fmt.Sprintf("rule %s (%s:%d)", printable(l.Rule.Name), printable(l.Rule.File), l.Rule.Line)
	case l.Owner == "admin":
		return "the administrator"
	}
	return printable(l.Owner)
}

// nodeText prints the limits and properties of a node: "10 MB/s up, weight 200".
func (a *App) nodeText(n *api.Node) string { return a.nodeTextWith(n, a.limitText) }

// ownedNodeText is nodeText with the owner of each limit.
func (a *App) ownedNodeText(n *api.Node) string { return a.nodeTextWith(n, a.ownedText) }

func (a *App) nodeTextWith(n *api.Node, limitText func(api.Limit) string) string {
	var parts []string
	for _, l := range lowest(n.Limits) {
		parts = append(parts, limitText(l))
	}
	parts = append(parts, a.properties(n)...)
	switch {
	case len(parts) == 0 && n.Group != "":
		return "its share"
	case len(parts) == 0:
		return noLimitText
	}
	return strings.Join(parts, ", ")
}

// noLimitText is the nodeText of a node without limits and properties.
const noLimitText = "no limit"

// properties prints the properties of a node other than its limits: "weight 200", "at least 1 MB/s up".
func (a *App) properties(n *api.Node) (parts []string) {
	switch {
	case n.Reserved != nil:
		parts = append(parts, a.reservedText(n))
	case n.MinBytesPerSec != 0:
		parts = append(parts, a.leastText(n.MinBytesPerSec, api.Up))
	}
	if n.MinDownBytesPerSec != 0 {
		parts = append(parts, a.leastText(n.MinDownBytesPerSec, api.Down))
	}
	if n.Granted != nil {
		parts = append(parts, "may reserve "+grantText(n.Granted))
	}
	if n.DSCP != nil {
		parts = append(parts, "dscp "+dscpText(*n.DSCP))
	}
	if n.Line != nil {
		parts = append(parts, lineText(n.Line))
	}
	switch n.Weight {
	case 0, limit.DefaultWeight:
	case backgroundWeight:
		parts = append(parts, "in the background")
	case interactiveWeight:
		parts = append(parts, "before others")
	default:
		parts = append(parts, fmt.Sprintf("weight %d", n.Weight))
	}
	return parts
}

// lineText prints the link-layer overhead of a line: "with 10 bytes a packet, in ATM cells".
func lineText(l *api.Line) string {
	text := fmt.Sprintf("with %d bytes a packet", l.OverheadBytes)
	if l.LeastBytes != 0 {
		text += fmt.Sprintf(", %d at least", l.LeastBytes)
	}
	if l.ATM {
		text += ", in ATM cells"
	}
	return text
}

// leastText prints a guarantee.
func (a *App) leastText(bytesPerSec uint64, way api.Direction) string {
	return "at least " + units.FormatRate(bytesPerSec, a.units) + " " + string(way)
}

// reservedText prints a reservation: "2.4 ms of each 50 ms of eth0".
func (a *App) reservedText(n *api.Node) string {
	r := n.Reserved
	text := fmt.Sprintf("%s of each %s of %s", units.FormatDuration(r.SliceNS), units.FormatDuration(r.PeriodNS), printable(r.Link))
	if n.MinBytesPerSec == 0 {
		return text + " (which has no limit now)"
	}
	text += ", " + units.FormatRate(n.MinBytesPerSec, a.units)
	if r.Extra {
		text += " at least"
	}
	if r.ForNS != 0 {
		text += ", for " + units.FormatDuration(r.ForNS) + " more"
	}
	return text
}

// grantText prints the share of a link that a user may reserve: "20% of eth0".
func grantText(g *api.Grant) string {
	return strconv.FormatFloat(float64(g.PPM)/onePercent, 'f', -1, 64) + "% of " + printable(g.Link)
}

// tightest finds the lowest limit in force of these directions among nodes, and its node; nil if there is none.
func tightest(nodes []api.Node, directions ...api.Direction) (*api.Node, *api.Limit) {
	return lowestOf(nodes, true, directions...)
}

// lowestOf is tightest for the limits in force, or for those that are set and not in force yet.
func lowestOf(nodes []api.Node, enforced bool, directions ...api.Direction) (*api.Node, *api.Limit) {
	var node *api.Node
	var limit *api.Limit
	for i := range nodes {
		for j, l := range nodes[i].Limits {
			if slices.Contains(directions, l.Direction) && l.Enforced == enforced && l.BytesPerSec > 0 && (limit == nil || l.BytesPerSec < limit.BytesPerSec) {
				node, limit = &nodes[i], &nodes[i].Limits[j]
			}
		}
	}
	return node, limit
}

// ownName returns a node's name, "" if its subject has the name already.
func ownName(n *api.Node) string {
	for _, name := range n.Names {
		if name.Problem != "" {
			return printable(name.Name) + " not found now: as before"
		}
	}
	if n.Name == n.Subject.ID || n.Name == string(n.Subject.Kind) {
		return ""
	}
	return printable(n.Name)
}

// waitText prints the backlog of a node, "-" if it has none.
func (a *App) waitText(u api.Usage) string {
	switch {
	case u.WaitingSockets == 0 && u.QueuedBytes == 0:
		return "-"
	case u.WaitingSockets == 0:
		return units.FormatBytes(u.QueuedBytes, a.units) + " queued"
	}
	return fmt.Sprintf("%s in %s", units.FormatBytes(u.WaitingBytes, a.units), count(u.WaitingSockets, "socket"))
}

// count prints "1 socket", "2 sockets".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") || strings.HasSuffix(what, "x") { // process, prefix
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// changed prints the outcome of a writing call.
func (a *App) changed(response *api.SetResponse, subject api.Subject, dryRun bool) {
	name := printable(subject.String())
	node := api.Node{}
	if response.Node != nil {
		node = *response.Node
		name = printable(node.Subject.String())
	}
	text := a.nodeText(&node)
	switch {
	case !response.Changed:
		fmt.Fprintf(a.Out, "%s: %s (unchanged)\n", name, text)
	case dryRun:
		fmt.Fprintf(a.Out, "%s: would become: %s\n", name, text)
	default:
		fmt.Fprintf(a.Out, "%s: %s\n", name, text)
	}
	if response.LoadedPrefixes > 0 {
		fmt.Fprintf(a.Out, "  %s loaded in %s\n", count(response.LoadedPrefixes, "prefix"), units.FormatDuration(response.LoadNS))
	}
	a.warn(response.Warnings)
}

func (a *App) warn(warnings []string) {
	for _, w := range slices.Compact(warnings) {
		fmt.Fprintf(a.Err, "netnice: note: %s\n", printable(w))
	}
}

// writeJSON prints v as one JSON value, indented for people.
func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}
