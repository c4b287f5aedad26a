package daemon

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/units"
)

// A guarantee is a part of every limit on sending, or on receiving, that encloses a node. At most 95% of a limit may be
// guaranteed: the rest is for those without a guarantee. If an enclosing node has a guarantee itself, the inner one is
// a part of that.

const (
	guaranteed   = 95 // of 100
	guaranteedOf = 100
)

// mostGuaranteed returns how much of a limit may be guaranteed, in bytes/s.
func mostGuaranteed(limit uint64) uint64 {
	return partOf(limit, guaranteed, guaranteedOf)
}

// outermost reports whether no limit can enclose the node, so that it cannot have a part of one. No link encloses the
// host, because the host sends by several.
func (n *node) outermost() bool {
	return n.res.Kind == enforce.KindHost || n.res.Kind == enforce.KindLink
}

// sendingLimit returns the lowest limit on what a node sends, 0 = none.
func (n *node) sendingLimit() uint64 { return n.limitOn(enforce.Up) }

// limitOn returns the lowest limit on what a node sends or receives, 0 = none.
func (n *node) limitOn(way enforce.Direction) (rate uint64) {
	for _, w := range n.holding() {
		for _, r := range []uint64{w.Rates()[way], w.Total} {
			if r != 0 && (rate == 0 || r < rate) {
				rate = r
			}
		}
	}
	return rate
}

// limitsAround returns the nodes with a limit on sending, or receiving, of which n's guarantee is a part, innermost
// first. The caller holds d.mu.
func (d *Daemon) limitsAround(n *node, way enforce.Direction) []*node {
	return d.limitsAroundOf(d.sorted(), n, way)
}

// limitsAroundOf is limitsAround for callers that call it repeatedly: all are the nodes in order.
func (d *Daemon) limitsAroundOf(all []*node, n *node, way enforce.Direction) (list []*node) {
	if link := d.nodes[n.reserved.link]; link != nil && way == enforce.Up {
		return []*node{link}
	}
	inner := []*node{}
	if d.nodes[n.id] != nil {
		inner = append(inner, d.nodes[n.id])
	}
	for _, around := range d.aroundOf(all, inner, n.res, sample{}) {
		if around.id == n.id || n.outermost() {
			continue
		}
		if around.limitOn(way) != 0 {
			list = append(list, around)
		}
		if around.promisedOn(way) != 0 {
			break
		}
	}
	return list
}

// promise is a node's guarantee, and the limits that it is a part of.
type promise struct {
	of          *node
	bytesPerSec uint64
	limits      []*node
}

// guarantees are all guarantees of one direction.
type guarantees struct {
	nodes   []promise
	sockets []enforce.SocketReservation // for sent traffic only
}

// guarantees finds them. For each guarantee it searches all nodes for the enclosing limits, so a caller that asks about
// several limits calls it once. The caller holds d.mu.
func (d *Daemon) guarantees(way enforce.Direction) (g guarantees) {
	var all []*node
	for _, n := range d.nodes {
		rate := n.promisedOn(way)
		if rate == 0 {
			continue
		}
		if all == nil {
			all = d.sorted()
		}
		g.nodes = append(g.nodes, promise{n, rate, d.limitsAroundOf(all, n, way)})
	}
	if way == enforce.Up {
		g.sockets = d.reservedSockets()
	}
	return g
}

// in returns the sum of the guarantees inside a node except those of one, in bytes/s.
func (g guarantees) in(outer, but *node) (sum uint64) {
	for _, p := range g.nodes {
		if p.of.id == but.id || p.of.id == outer.id {
			continue
		}
		for _, limit := range p.limits {
			if limit.id == outer.id {
				sum += p.bytesPerSec
			}
		}
	}
	for _, s := range g.sockets {
		if s.Link == outer.id {
			sum += s.BytesPerSec
		}
	}
	return sum
}

// guaranteedIn returns the sum of the guarantees inside a node except those of one, in bytes/s. The caller holds d.mu.
func (d *Daemon) guaranteedIn(outer, but *node, way enforce.Direction) uint64 {
	return d.guarantees(way).in(outer, but)
}

// promises returns how much of a link's limit on sending is promised, and the most that may be. all finds the
// guarantees of sent traffic. The caller holds d.mu.
func (n *node) promises(all func() guarantees) (promised, most uint64) {
	if n.res.Kind != enforce.KindLink || n.sendingLimit() == 0 {
		return 0, 0
	}
	return all().in(n, n), mostGuaranteed(n.sendingLimit())
}

// admit refuses a guarantee that cannot be kept. The caller holds d.mu.
func (d *Daemon) admit(n *node, way enforce.Direction) error {
	if n.outermost() {
		return &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("%s has nothing around it of which a part could be guaranteed", n.res.Subject),
			Hint:    "netnice set --user NAME --min RATE",
		}
	}
	around := d.limitsAround(n, way)
	if len(around) == 0 {
		return nil
	}
	want, all := n.promisedOn(way), d.guarantees(way)
	for _, limit := range around {
		rate := limit.limitOn(way)
		most, taken := mostGuaranteed(rate), all.in(limit, n)
		left := most - min(most, taken)
		if want <= left || limit.backlog != 0 { // the rate of a path is one for what goes there
			continue
		}
		what := "a guarantee"
		if n.reserved.link != 0 && way == enforce.Up {
			what = "a reservation"
		}
		return &api.Error{
			Code: api.CodeConflict,
			Message: fmt.Sprintf("%s of %s does not fit into the limit of %s on %s: %s of it may be guaranteed, %s are already, %s are left",
				what, rateText(want), rateText(rate), limit.res.Subject, rateText(most), rateText(taken), rateText(left)),
			Hint: "ask for what is left, or raise that limit: netnice show --" + flagsOf(limit.res),
		}
	}
	return nil
}

// guaranteeWarnings returns effects of guarantees that the caller may not expect. The caller holds d.mu.
func (d *Daemon) guaranteeWarnings(req api.SetRequest, n *node) (list []string) {
	for _, of := range []struct {
		way          enforce.Direction
		least, limit *uint64
		what         string
	}{
		{enforce.Up, req.Wish.MinBytesPerSec, req.Wish.UpBytesPerSec, "sending"},
		{enforce.Down, req.Wish.MinDownBytesPerSec, req.Wish.DownBytesPerSec, "receiving"},
	} {
		if of.least != nil && *of.least != 0 && len(d.limitsAround(n, of.way)) == 0 {
			list = append(list, "no limit on "+of.what+" stands around it: there is nothing yet of which a part could be guaranteed; the line's: "+d.lineCommand())
		}
		rate := n.limitOn(of.way)
		if of.limit == nil && req.Wish.TotalBytesPerSec == nil || rate == 0 {
			continue
		}
		if own := n.promisedOn(of.way); own > rate {
			list = append(list, fmt.Sprintf("the guarantee of %s is more than the limit", rateText(own)))
		}
		if d.nodes[n.id] == nil {
			continue // nothing is inside a new node
		}
		if sum := d.guaranteedIn(n, n, of.way); sum > mostGuaranteed(rate) {
			list = append(list, fmt.Sprintf("%s are guaranteed inside it, which do not fit any more: they share it", rateText(sum)))
		}
	}
	return list
}

// weightWarnings returns a warning for a weight without effect, because no limit encloses the node. The caller holds
// d.mu.
func (d *Daemon) weightWarnings(req api.SetRequest, n *node) []string {
	if w := req.Wish.Weight; w == nil || *w == 0 || *w == limit.DefaultWeight || n.outermost() || d.isInsideLimit(n) {
		return nil
	}
	return []string{fmt.Sprintf("a weight decides among those who share a limit, and none stands around %s: it changes nothing until one does, such as the line's: %s",
		n.res.Subject, d.lineCommand())}
}

// isInsideLimit reports whether a limit encloses a node. A limit on a link by which the node may send counts, too. The
// caller holds d.mu.
func (d *Daemon) isInsideLimit(n *node) bool {
	inner := []*node{}
	if known := d.nodes[n.id]; known != nil {
		inner = append(inner, known)
	}
	for _, around := range d.around(inner, n.res, sample{}) {
		if around.id != n.id && (around.limitOn(enforce.Up) != 0 || around.limitOn(enforce.Down) != 0) {
			return true
		}
	}
	return false
}

// lineDevice is the device of the default route at a time; "" = there is none, or it is being looked for.
type lineDevice struct {
	name string
	at   time.Time
}

// lineDevicePause is how often the daemon looks for the device.
const lineDevicePause = time.Minute

// learnLine finds the device for the text of lineCommand, if a request may lead to that text and the last look-up is
// not recent. The caller holds no lock: learnLine reads all routes of the machine, and a router has hundreds of
// thousands.
func (d *Daemon) learnLine(w api.Wish) {
	if w.Weight == nil && w.MinBytesPerSec == nil && w.MinDownBytesPerSec == nil {
		return
	}
	next, known := lineDevice{at: d.now()}, d.lineDevice.Load()
	if known != nil {
		if next.at.Sub(known.at) < lineDevicePause {
			return
		}
		next.name = known.name // for callers during this look-up
	}
	if !d.lineDevice.CompareAndSwap(known, &next) {
		return // another goroutine looks it up
	}
	d.lineDevice.Store(&lineDevice{name: d.resolver.DefaultDevice(), at: next.at})
}

// lineCommand returns the command that makes programs share the capacity of the line.
func (d *Daemon) lineCommand() string {
	device := "DEVICE"
	if known := d.lineDevice.Load(); known != nil && known.name != "" {
		device = known.name
	}
	return "sudo netnice link " + device + " --measure HOST, or --rate RATE"
}

// promisedOn returns the node's guarantee on sending, or on receiving, in bytes/s.
func (n *node) promisedOn(way enforce.Direction) uint64 {
	if n.promisesNothing() {
		return 0
	}
	if way == enforce.Down {
		return n.holding()[enforce.OwnerAdmin].MinDown
	}
	return n.promised()
}

// promisesNothing reports whether nobody has asked for a guarantee or a reservation of the node, as of most.
func (n *node) promisesNothing() bool {
	for owner := range n.requested {
		for _, l := range []*limit.Limit{&n.requested[owner], &n.ruled.Owners[owner].Wish} {
			if l.Min != 0 || l.MinDown != 0 || l.Reserve.SliceNS != 0 {
				return false
			}
		}
	}
	return true
}

func rateText(bytesPerSec uint64) string { return units.FormatRate(bytesPerSec, units.Bytes) }

// flagsOf names a subject as the command line does.
func flagsOf(res identity.Resolved) string {
	if res.Subject.ID == "" {
		return string(res.Subject.Kind)
	}
	return string(res.Subject.Kind) + " " + res.Subject.ID
}
