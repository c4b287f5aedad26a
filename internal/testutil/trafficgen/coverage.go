package trafficgen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Coverage counts the programs with each choice, alone and together with each other choice of the same sender.
type Coverage struct {
	Programs int
	Traits   map[string]int
	Pairs    map[[2]string]int
	Refused  map[string]int // choices that the kernel did not allow
}

// NewCoverage returns the coverage of no program.
func NewCoverage() *Coverage {
	return &Coverage{Traits: map[string]int{}, Pairs: map[[2]string]int{}, Refused: map[string]int{}}
}

// Add counts a program; refused holds choices, such as "option=bbr", that the kernel did not allow.
func (c *Coverage) Add(p Program, refused map[string]bool) {
	c.Programs++
	for choice := range refused {
		c.Refused[choice]++
	}
	traits, pairs := map[string]bool{}, map[[2]string]bool{}
	for _, s := range p.Senders {
		var list []string
		for _, t := range []Traits{p.Limit, s} {
			for name, value := range t {
				if trait := strings.TrimSuffix(name, "2") + "=" + value; !refused[trait] && !slices.Contains(list, trait) {
					list = append(list, trait)
				}
			}
		}
		slices.Sort(list)
		for i, a := range list {
			traits[a] = true
			for _, b := range list[i+1:] {
				pairs[[2]string{a, b}] = true
			}
		}
	}
	for t := range traits {
		c.Traits[t]++
	}
	for t := range pairs {
		c.Pairs[t]++
	}
}

// String lists the rare choices, and those that the kernel did not allow.
func (c *Coverage) String() string {
	rarest := slices.SortedFunc(maps.Keys(c.Traits), func(a, b string) int { return c.Traits[a] - c.Traits[b] })
	var b strings.Builder
	fmt.Fprintf(&b, "%d programs, %d choices, %d pairs of them; the rarest:", c.Programs, len(c.Traits), len(c.Pairs))
	for _, t := range rarest[:min(5, len(rarest))] {
		fmt.Fprintf(&b, " %s %d", t, c.Traits[t])
	}
	if len(c.Refused) > 0 {
		b.WriteString("; left out, as the kernel refused it:")
		for _, t := range slices.Sorted(maps.Keys(c.Refused)) {
			fmt.Fprintf(&b, " %s %d", t, c.Refused[t])
		}
	}
	return b.String()
}
