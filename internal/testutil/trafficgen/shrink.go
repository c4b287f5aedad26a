package trafficgen

import "slices"

// Shrink returns the smallest program that it finds which still fails, with at most tries attempts. The program
// itself has to fail.
func Shrink(p Program, tries int, fails func(Program) bool) Program {
	for changed := true; changed; {
		changed = false
		for _, smaller := range simpler(p) {
			if tries == 0 {
				return p
			}
			tries--
			if fails(smaller) {
				p, changed = smaller, true
				break
			}
		}
	}
	return p
}

// simpler lists programs with one sender less, or with one choice replaced by the first one.
func simpler(p Program) (list []Program) {
	add := func(c Program) {
		if c.valid() {
			list = append(list, c)
		}
	}
	for i := range p.Senders {
		c := p.clone()
		c.Senders = slices.Delete(c.Senders, i, i+1)
		add(c)
	}
	limits, each := p.dimensions()
	for _, d := range limits {
		if usual := d.choices[0].value; p.Limit[d.name] != usual {
			c := p.clone()
			c.Limit[d.name] = usual
			add(c)
		}
	}
	for i, s := range p.Senders {
		for _, d := range each {
			if usual := d.choices[0].value; s[d.name] != usual {
				c := p.clone()
				c.Senders[i][d.name] = usual
				add(c)
			}
		}
	}
	return list
}
