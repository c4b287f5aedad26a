package share

import (
	"math"
	"testing"
	"time"
)

func TestCells(t *testing.T) {
	names := map[string]bool{}
	for _, c := range allCells() {
		if names[c.name()] {
			t.Errorf("two cells are called %s", c.name())
		}
		names[c.name()] = true
		sum := 0.0
		for i := range c.programs {
			sum += c.part(i)
			if n := c.connections(i); n < 1 || n > 64 {
				t.Errorf("%s: program %d has %d connections", c.name(), i, n)
			}
			if w := c.weight(i); w < 1 || w > 100 {
				t.Errorf("%s: program %d has a weight of %d", c.name(), i, w)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: the parts are %f together", c.name(), sum)
		}
	}
	for _, name := range []string{"netnice 1.25MB/s x2", "htb 125MB/s x100 weighted", "netnice 12.5MB/s x10 weighted 100ms", "htb 12.5MB/s x10 weighted 20ms 1%"} {
		if !names[name] {
			t.Errorf("no cell is called %s", name)
		}
	}
}

func TestJudge(t *testing.T) {
	c := &cell{limiter: limiterNetnice, rate: 12_500_000, programs: 2}
	good := figures{Least: 0.99, Most: 1.02, LeastSum: 0.99, OtherP99: 300}
	for want, change := range map[string]func(*figures){
		"": func(*figures) {}, "part": func(f *figures) { f.Least = 0.96 }, "sum": func(f *figures) { f.LeastSum = 0.96 },
		"bystander": func(f *figures) { f.OtherP99 = int64(4 * time.Millisecond / time.Microsecond) },
	} {
		f := good
		change(&f)
		c.judge(&f)
		if got := len(f.Missed); want == "" && got != 0 || want != "" && (got != 1 || f.Missed[0] != want) {
			t.Errorf("%+v: missed %q, want %q", f, f.Missed, want)
		}
	}
}
