package adaptation

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
	list  []*area
}

// LearnRules finds the rules with adapt that are active now; set is nil until rules were read.
func (t *Table) LearnRules(set *rules.Set, now time.Time) {
	next := ruledAreas{known: set != nil}
	if set != nil {
		for _, r := range set.Rules() {
			if r.Adapts() && r.Active(now) {
				next.list = append(next.list, ruledArea(r))
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ruled = next
	t.wakeUp()
}

func ruledArea(r *rules.Rule) *area {
	var to destination.Selector
	to.Prefixes, to.Except = r.Reach()
	to.Prefixes, to.Except = destination.Tidy(to.Prefixes), destination.Tidy(to.Except)
	req := api.AdaptRequest{Host: to.String(), SharePPM: r.Limits.AdaptSharePPM, TCP: r.Protocol() != rules.UDP}
	if most := r.Limits.UpBytesPerSec; most != nil {
		req.MostBytesPerSec = *most
	}
	fill(&req)
	from := r.Origin()
	return newArea(req.Host, 0, settingsOf(&req), &from)
}

// find returns the area of the rule that asks for it, nil if none does.
func (r *ruledAreas) find(key areaKey) *area {
	at := slices.IndexFunc(r.list, func(w *area) bool { return w.key() == key })
	if at < 0 {
		return nil
	}
	return r.list[at]
}

// followRules begins the areas that rules ask for, and ends those that no rule asks for any more. Areas of commands
// stay.
func (t *Table) followRules(ctx context.Context) (failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ruled.known || t.refuse != nil {
		return nil
	}
	for key, a := range t.areas {
		if a.Rule == nil {
			continue
		}
		w := t.ruled.find(key)
		if w != nil && w.settings == a.settings {
			a.Rule = w.Rule
			continue
		}
		err := t.dropArea(ctx, a)
		t.save()
		failed = errors.Join(failed, err)
		if err == nil {
			t.log.Info("limits follow paths no more: the rule has changed", "to", a.Host, "rule", a.Rule.Name)
		}
	}
	for _, w := range t.ruled.list {
		if t.areas[w.key()] != nil {
			continue
		}
		if err := t.beginArea(ctx, newArea(w.Host, w.Netns, w.settings, w.Rule)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%v: %w", w.Rule, err))
		}
	}
	return failed
}

// RuledHosts returns the keys of the rules by which hosts are followed now: one for each host.
func (t *Table) RuledHosts() (keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, host := range t.list {
		if a := t.areas[areaKey{host.Area, host.Netns}]; a != nil && a.Rule != nil {
			keys = append(keys, a.Rule.Key)
		}
	}
	return keys
}
