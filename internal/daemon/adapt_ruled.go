package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/rules"
)

// Rules with adapt are areas like those of commands, and begin and end with the rule.

// ruledAreas are the areas that rules ask to follow.
type ruledAreas struct {
	known bool // rules were read; until then the present areas stay
	list  []*adaptArea
}

// learnAdapts finds the rules with adapt that are active now. The caller holds d.rules.mu.
func (d *Daemon) learnAdapts(now time.Time) {
	set := d.rules.system.set
	next := ruledAreas{known: set != nil}
	if set != nil {
		for _, r := range set.Rules() {
			if r.Adapts() && r.Active(now) {
				next.list = append(next.list, ruledArea(r))
			}
		}
	}
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	d.adapts.ruled = next
	d.wakeAdapts()
}

func ruledArea(r *rules.Rule) *adaptArea {
	var to destination.Selector
	to.Prefixes, to.Except = r.Reach()
	to.Prefixes, to.Except = destination.Tidy(to.Prefixes), destination.Tidy(to.Except)
	req := api.AdaptRequest{Host: to.String(), SharePPM: r.Limits.AdaptSharePPM, TCP: r.Protocol() != rules.UDP}
	if most := r.Limits.UpBytesPerSec; most != nil {
		req.MostBytesPerSec = *most
	}
	fillAdapt(&req)
	from := r.Origin()
	return newArea(req.Host, 0, howOf(&req), &from)
}

// byRule returns the area of the rule that asks for it, nil if none does. The caller holds d.adapts.mu.
func (a *adapts) byRule(key areaKey) *adaptArea {
	at := slices.IndexFunc(a.ruled.list, func(w *adaptArea) bool { return w.key() == key })
	if at < 0 {
		return nil
	}
	return a.ruled.list[at]
}

// followRules begins the areas that rules ask for, and ends those that no rule asks for any more. Areas of commands
// stay.
func (d *Daemon) followRules(ctx context.Context) (failed error) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	if !d.adapts.ruled.known || d.adapts.isDown {
		return nil
	}
	for key, a := range d.adapts.areas {
		if a.Rule == nil {
			continue
		}
		w := d.adapts.byRule(key)
		if w != nil && w.adaptHow == a.adaptHow {
			a.Rule = w.Rule
			continue
		}
		err := d.dropArea(ctx, a)
		d.saveAdapts()
		failed = errors.Join(failed, err)
		if err == nil {
			d.log.Info("limits follow paths no more: the rule has changed", "to", a.Host, "rule", a.Rule.Name)
		}
	}
	for _, w := range d.adapts.ruled.list {
		if d.adapts.areas[w.key()] != nil {
			continue
		}
		if err := d.beginArea(ctx, newArea(w.Host, w.Netns, w.adaptHow, w.Rule)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%v: %w", w.Rule, err))
		}
	}
	return failed
}

// ruledHosts returns the rules by which hosts are followed now: one entry for each host.
func (d *Daemon) ruledHosts() (list []rules.Origin) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	for _, host := range d.adapts.list {
		if a := d.adapts.areas[areaKey{host.Area, host.Netns}]; a != nil && a.Rule != nil {
			list = append(list, *a.Rule)
		}
	}
	return list
}
