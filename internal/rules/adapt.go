package rules

import (
	"net/netip"

	"github.com/netnice/netnice/internal/units"
)

const (
	defaultAdaptShare = 500_000 // ppm
	// MostAdaptPrefixes bounds the prefixes of one rule: they form the name of a limit.
	MostAdaptPrefixes = 64
)

// adapts reads the keys of a rule whose rates adapt to each path. Such a rule sets no limit itself, because the daemon
// sees the destinations only when traffic is sent to them.
func (o object) adapts(r *Rule) {
	value, there := o.keys["adapt"]
	if !there {
		return
	}
	share, ok := adaptShare(value)
	if !ok {
		o.problem("adapt", `adapt = true, or a share of the path beside others: adapt = "30%"`, "adapt is neither true nor a share of 10%% to 100%%")
	}
	r.Limits.AdaptSharePPM = share
	if o.in.OfUser {
		o.problem("adapt", "remove the rule, and ask the administrator", "only the administrator may have paths probed")
	}
	if len(r.to) == 0 {
		o.problem("adapt", `such as: to = ["0.0.0.0/0", "::/0", "!10.0.0.0/8"]`, "adapt does not say to whom")
	}
	if len(r.to) > MostAdaptPrefixes {
		o.problem("to", "name fewer, shorter prefixes", "a rule that adapts names more than %d prefixes", MostAdaptPrefixes)
	}
	if r.protocol == TCP {
		o.problem("protocol", `protocol = "udp", or without the line, which paces TCP, too`, "adapt is not for TCP alone")
	}
	for _, key := range []string{"program", "command", "user", "cgroup", "unit", "container", "parent", "port", "down", "total", "share", "also"} {
		if _, there := o.keys[key]; there {
			o.problem(key, "remove the line", "%s has no meaning beside adapt, which is for what everybody sends to a host", key)
		}
	}
}

// adaptShare reads the part of a path's capacity that the rule keeps, in parts of a million.
func adaptShare(value any) (ppm uint32, ok bool) {
	switch v := value.(type) {
	case bool:
		return defaultAdaptShare, v
	case string:
		return units.ParseShare(v)
	}
	return defaultAdaptShare, false
}

// Adapts reports whether the rule adapts the rate of sent traffic to the path to each host.
func (r *Rule) Adapts() bool { return r.Limits.AdaptSharePPM != 0 }

// Reach returns the prefixes that a rule is for, and those that it leaves out.
func (r *Rule) Reach() (prefixes, except []netip.Prefix) {
	for _, one := range r.reaches() {
		if one.except {
			except = append(except, one.prefix)
		} else {
			prefixes = append(prefixes, one.prefix)
		}
	}
	return prefixes, except
}
