package demo

import (
	"fmt"
	"io"
	"time"
)

// plainEvery is the interval of the lines where there is no terminal.
const plainEvery = 500 * time.Millisecond

// plain prints the demo as successive lines.
type plain struct {
	out      io.Writer
	scene    int // already announced, counted from 1
	commands int // of that scene, already printed
	figures  int // already printed
	next     time.Duration
}

// show prints the new parts of the state. A failed write is lost; the write of the figures at the end is checked.
func (p *plain) show(s State) {
	if p.scene == 0 {
		fmt.Fprintf(p.out, "netnice demo: real traffic, as its receiver counts it, for about %.0f s\n", s.Planned.Seconds())
	}
	for ; p.figures < len(s.Figures); p.figures++ {
		f := s.Figures[p.figures]
		fmt.Fprintf(p.out, "     -> %s %s, wanted %s: %s\n", f.What, f.Text, f.Wanted, f.Verdict)
	}
	if s.Scene+1 != p.scene {
		p.scene, p.commands = s.Scene+1, 0
		fmt.Fprintf(p.out, "\n%d  %s\n", p.scene, s.Scenes[s.Scene].Title)
	}
	for ; p.commands < len(s.Scenes[s.Scene].Commands); p.commands++ {
		fmt.Fprintf(p.out, "   # %s\n", s.Scenes[s.Scene].Commands[p.commands])
	}
	if len(s.Rates) == 0 || s.Elapsed < p.next || s.Done {
		return
	}
	p.next = s.Elapsed.Truncate(plainEvery) + plainEvery
	rate := s.Rates[len(s.Rates)-1]
	const cells = 40
	logBar := float64(height(rate, 1)) / float64((topDecade-bottomDecade)*8)
	fmt.Fprintf(p.out, "%6.1f s  %-*s %11s", s.Elapsed.Seconds(), cells, bar(logBar, cells), formatRate(rate))
	for i, part := range s.Parts {
		if i == 0 {
			fmt.Fprint(p.out, "  =")
		} else {
			fmt.Fprint(p.out, " +")
		}
		fmt.Fprint(p.out, " ", part.Text)
	}
	fmt.Fprintln(p.out)
}
