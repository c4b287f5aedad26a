package daemon

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/units"
)

// A guarantee is a part of every limit on sending around a node. What is guaranteed inside a
// limit may be 95% of it: the rest is for those without one. Where a node around
// another has a guarantee itself, the inner one is a part of that.

const (
	guaranteed   = 95 // of 100
	guaranteedOf = 100
)

// mostGuaranteed is what may be guaranteed of a limit, in bytes/s.
func mostGuaranteed(limit uint64) uint64 {
	return partOf(limit, guaranteed, guaranteedOf)
}

// outermost reports whether no limit stands around the node of which it could have a part. The
// host sends by several links.
func (n *node) outermost() bool {
	return n.res.Kind == enforce.KindHost || n.res.Kind == enforce.KindLink
}

// sendingLimit is the lowest limit of what a node sends, 0 = none.
func (n *node) sendingLimit() (rate uint64) {
	for _, w := range n.holding() {
		for _, r := range []uint64{w.Up, w.Total} {
			if r != 0 && (rate == 0 || r < rate) {
				rate = r
			}
		}
	}
	return rate
}

// limitsAround are the nodes with a limit on sending of which n's guarantee is a part,
// innermost first. The caller holds d.mu.
func (d *Daemon) limitsAround(n *node) (list []*node) {
	if link := d.nodes[n.reserved.link]; link != nil {
		return []*node{link}
	}
	inner := []*node{}
	if d.nodes[n.id] != nil {
		inner = append(inner, d.nodes[n.id])
	}
	for _, around := range d.around(inner, n.res, sample{}) {
		if around.id == n.id || n.outermost() {
			continue
		}
		if around.sendingLimit() != 0 {
			list = append(list, around)
		}
		if around.promised() != 0 {
			break
		}
	}
	return list
}

// guaranteedIn is what is guaranteed inside a node to others than one, in bytes/s. The
// caller holds d.mu.
func (d *Daemon) guaranteedIn(outer, but *node) (sum uint64) {
	for _, n := range d.sorted() {
		if n.id == but.id || n.id == outer.id || n.promised() == 0 {
			continue
		}
		for _, limit := range d.limitsAround(n) {
			if limit.id == outer.id {
				sum += n.promised()
			}
		}
	}
	for _, s := range d.reservedSockets() {
		if s.Link == outer.id {
			sum += s.BytesPerSec
		}
	}
	return sum
}

// promises is what is promised of a link's limit on sending, of which so much may be. The
// caller holds d.mu.
func (d *Daemon) promises(n *node) (promised, most uint64) {
	if n.res.Kind != enforce.KindLink || n.sendingLimit() == 0 {
		return 0, 0
	}
	return d.guaranteedIn(n, n), mostGuaranteed(n.sendingLimit())
}

// admit refuses a guarantee that cannot be kept. The caller holds d.mu.
func (d *Daemon) admit(n *node) error {
	if n.outermost() {
		return &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("%s has nothing around it of which a part could be guaranteed", n.res.Subject),
			Hint:    "netnice set --user NAME --min RATE",
		}
	}
	want := n.promised()
	for _, limit := range d.limitsAround(n) {
		rate := limit.sendingLimit()
		most, taken := mostGuaranteed(rate), d.guaranteedIn(limit, n)
		left := most - min(most, taken)
		if want <= left {
			continue
		}
		what := "a guarantee"
		if n.reserved.link != 0 {
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

// guaranteeWarnings tell of guarantees what the caller may not expect. The caller holds d.mu.
func (d *Daemon) guaranteeWarnings(req api.SetRequest, n *node) (list []string) {
	if least := req.Wish.MinBytesPerSec; least != nil && *least != 0 && len(d.limitsAround(n)) == 0 {
		list = append(list, "no limit on sending stands around it: there is nothing yet of which a part could be guaranteed")
	}
	if req.Wish.UpBytesPerSec == nil && req.Wish.TotalBytesPerSec == nil {
		return list
	}
	if own := n.promised(); own != 0 && n.sendingLimit() != 0 && own > n.sendingLimit() {
		list = append(list, fmt.Sprintf("the guarantee of %s is more than the limit", rateText(own)))
	}
	if rate := n.sendingLimit(); rate != 0 && d.nodes[n.id] != nil {
		if sum := d.guaranteedIn(n, n); sum > mostGuaranteed(rate) {
			list = append(list, fmt.Sprintf("%s are guaranteed inside it, which do not fit any more: they share it", rateText(sum)))
		}
	}
	return list
}

func rateText(bytesPerSec uint64) string { return units.FormatRate(bytesPerSec, units.Bytes) }

// flagsOf names a subject as the command line does.
func flagsOf(res identity.Resolved) string {
	if res.Subject.ID == "" {
		return string(res.Subject.Kind)
	}
	return string(res.Subject.Kind) + " " + res.Subject.ID
}
