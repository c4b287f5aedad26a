package daemon

import (
	"cmp"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
	"github.com/netnice/netnice/internal/units"
)

// A guarantee is a part of every limit on sending, or on receiving, that encloses a node. At most 95% of a limit may be
// guaranteed: the rest is for those without a guarantee. If an enclosing node has a guarantee itself, the inner one is
// a part of that.

// sendingLimit returns the lowest limit on what a node sends, 0 = none.
func (n *node) sendingLimit() uint64 { return n.limitOn(enforce.Up) }

// limitOn returns the lowest limit on what a node sends or receives, 0 = none.
func (n *node) limitOn(way enforce.Direction) uint64 { return n.Holding().Lowest(way) }

// guaranteedIn returns the sum of the guarantees inside a node except those of one, in bytes/s. The caller holds d.mu.
func (d *Daemon) guaranteedIn(outer, but *node, way enforce.Direction) uint64 {
	return d.observe.GuaranteedIn(d.draft(), outer.id, but.id, way)
}

// admit refuses a guarantee that cannot be kept. The caller holds d.mu.
func (d *Daemon) admit(n *node, way enforce.Direction) error {
	shown := n.record()
	if shown.IsOutermost() {
		return &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("%s has nothing around it of which a part could be guaranteed", n.res.Subject),
			Hint:    "netnice set --user NAME --min RATE",
		}
	}
	around := d.observe.LimitsAround(d.draft(), shown, way)
	if len(around) == 0 {
		return nil
	}
	want, all := n.Guarantee(way), d.observe.Guarantees(d.draft(), way)
	limits := make([]plan.Enclosing, len(around))
	for i, outer := range around {
		limits[i] = plan.Enclosing{
			BytesPerSec: outer.Holding.Lowest(way), Taken: all.In(outer.ID, n.id),
			IsElastic: d.nodes.Get(outer.ID).BacklogNS != 0,
		}
	}
	refusing := plan.Refusing(want, limits)
	if refusing >= 0 {
		ended := all.Only(d.endedTrees())
		for i, outer := range around {
			limits[i].Taken -= ended.In(outer.ID, n.id)
		}
		refusing = plan.Refusing(want, limits)
	}
	if refusing < 0 {
		return nil
	}
	what := "a guarantee"
	if n.Reserved.Link != 0 && way == enforce.Up {
		what = "a reservation"
	}
	outer, l := around[refusing], limits[refusing]
	return &api.Error{
		Code: api.CodeConflict,
		Message: fmt.Sprintf("%s of %s does not fit into the limit of %s on %s: %s of it may be guaranteed, %s are already, %s are left",
			what, units.RateText(want), units.RateText(l.BytesPerSec), outer.Subject, units.RateText(l.Most()), units.RateText(l.Taken), units.RateText(l.Left())),
		Hint: "ask for what is left, or raise that limit: netnice show --" + flagsOf(outer.Resolved),
	}
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
		if of.least != nil && *of.least != 0 && len(d.observe.LimitsAround(d.draft(), n.record(), of.way)) == 0 {
			list = append(list, "no limit on "+of.what+" stands around it: there is nothing yet of which a part could be guaranteed; the line's: "+d.lineCommand())
		}
		rate := n.limitOn(of.way)
		if of.limit == nil && req.Wish.TotalBytesPerSec == nil || rate == 0 {
			continue
		}
		if own := n.Guarantee(of.way); own > rate {
			list = append(list, fmt.Sprintf("the guarantee of %s is more than the limit", units.RateText(own)))
		}
		if d.nodes.Get(n.id) == nil {
			continue // nothing is inside a new node
		}
		if sum := d.guaranteedIn(n, n, of.way); sum > limit.MostGuaranteed(rate) {
			list = append(list, fmt.Sprintf("%s are guaranteed inside it, which do not fit any more: they share it", units.RateText(sum)))
		}
	}
	return list
}

// weightWarnings returns a warning for a weight without effect, because no limit encloses the node. The caller holds
// d.mu.
func (d *Daemon) weightWarnings(req api.SetRequest, n *node) []string {
	if w := req.Wish.Weight; w == nil || *w == 0 || *w == limit.DefaultWeight {
		return nil
	}
	if shown := n.record(); shown.IsOutermost() || d.observe.IsInsideLimit(d.draft(), shown) {
		return nil
	}
	return []string{fmt.Sprintf("a weight decides among those who share a limit, and none stands around %s: it changes nothing until one does, such as the line's: %s",
		n.res.Subject, d.lineCommand())}
}

// learnLine finds the device for the text of lineCommand, if a request may lead to that text. The caller holds no lock.
func (d *Daemon) learnLine(w api.Wish) {
	if w.Weight != nil || w.MinBytesPerSec != nil || w.MinDownBytesPerSec != nil {
		d.lineDevice.Learn(d.now(), d.resolver.DefaultDevice)
	}
}

// lineCommand returns the command that makes programs share the capacity of the line.
func (d *Daemon) lineCommand() string {
	return "sudo netnice link " + cmp.Or(d.lineDevice.Name(), "DEVICE") + " --measure HOST, or --rate RATE"
}

// flagsOf names a subject as the command line does.
func flagsOf(res identity.Resolved) string {
	if res.Subject.ID == "" {
		return string(res.Subject.Kind)
	}
	return string(res.Subject.Kind) + " " + res.Subject.ID
}
