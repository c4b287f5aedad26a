package delay

import (
	"fmt"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// delays holds the delays of the trips that began in a window.
type delays struct {
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Number int     `json:"answered"`
	Lost   int     `json:"lost"` // not answered within two seconds after the cell's windows
}

// delaysOf returns the delays of the trips that began from one instant to another.
func delaysOf(t trips, from, to testbed.Instant) (d delays) {
	begun := 0
	for _, at := range t.Begun {
		if at >= from && at < to {
			begun++
		}
	}
	took := testbed.Between(t.Ended, from, to)
	d.Number, d.Lost = len(took), begun-len(took)
	d.P50, d.P99 = millis(testbed.Percentile(took, 50)), millis(testbed.Percentile(took, 99))
	return d
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// String also prints the number of trips: at low limits there are few.
func (d delays) String() string {
	if d.Number == 0 {
		return "- (0)"
	}
	return fmt.Sprintf("%s / %s (%d)", millisText(d.P50), millisText(d.P99), d.Number)
}

// millisText returns about three digits.
func millisText(ms float64) string {
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}

// baseline holds the figures of a path without a limit.
type baseline struct {
	Path     string `json:"path"`
	Question delays `json:"question"`
	HTTP     delays `json:"http"`
}

// figures holds the figures of a cell. Each array holds the first window and the one after.
type figures struct {
	Name   string    `json:"name"`
	Limit  uint64    `json:"limit_bytes_per_sec"`
	Way    direction `json:"direction"`
	Beside rival     `json:"beside"`
	Same   [2]delays `json:"question_of_the_same_program"`
	Other  [2]delays `json:"question_of_another_program"`
	HTTP   [2]delays `json:"http_of_another_program"`
	Used   float64   `json:"used_over_limit"` // rate of the rival traffic, IP bytes, over both windows

	cell cell
}

// lost returns the numbers of questions and fetches without an answer.
func (f figures) lost() (questions, fetches int) {
	for i := range f.Same {
		questions += f.Same[i].Lost + f.Other[i].Lost
		fetches += f.HTTP[i].Lost
	}
	return questions, fetches
}

// header returns the header of the table.
func header() string {
	titles := []string{
		"limit", "direction", "beside", "path alone: UDP, HTTP (p50)",
		"UDP, same program: first", "after", "UDP, another: first", "after", "HTTP, another: first", "after",
		"lost: UDP, HTTP", "used of the limit",
	}
	return "| " + strings.Join(titles, " | ") + " |\n|" + strings.Repeat("---|", len(titles))
}

// row returns a cell's line of the table.
func (f figures) row(base baseline) string {
	questions, fetches := f.lost()
	cells := []string{
		f.cell.limitText(), string(f.Way), string(f.Beside), millisText(base.Question.P50) + ", " + millisText(base.HTTP.P50),
		f.Same[0].String(), f.Same[1].String(), f.Other[0].String(), f.Other[1].String(), f.HTTP[0].String(), f.HTTP[1].String(),
		fmt.Sprintf("%d, %d", questions, fetches), fmt.Sprintf("%.3f", f.Used),
	}
	return "| " + strings.Join(cells, " | ") + " |"
}
