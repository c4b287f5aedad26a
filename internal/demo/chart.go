package demo

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The chart's scale is logarithmic, since the demo's rates range from a limit of a few MB/s to the machine's
// maximum.
const (
	bottomDecade = 6  // 1 MB/s
	topDecade    = 11 // 100 GB/s
	labelWidth   = 10
)

// chart draws the rates over the whole planned time, rowsPerDecade rows for a factor of ten. The number of each
// scene is below its start.
func chart(s State, width, rowsPerDecade int, st style) []string {
	rows := (topDecade - bottomDecade) * rowsPerDecade
	columns := max(width-labelWidth-2, 10)
	heights := make([]int, columns) // in eighths of a row
	for i, rate := range columnRates(s, columns) {
		heights[i] = height(rate, rowsPerDecade)
	}
	eighths := []rune(" ▁▂▃▄▅▆▇█") // a cell, empty to full
	var lines []string
	for row := rows - 1; row >= 0; row-- {
		label, tick := "", "│"
		if (row+1)%rowsPerDecade == 0 {
			label, tick = formatRate(math.Pow10(bottomDecade+(row+1)/rowsPerDecade)), "┤"
		}
		var b strings.Builder
		for _, h := range heights {
			b.WriteRune(eighths[min(max(h-8*row, 0), 8)])
		}
		lines = append(lines, st.dim(fmt.Sprintf("%*s %s", labelWidth, label, tick))+st.bar(strings.TrimRight(b.String(), " ")))
	}
	axis := []rune(strings.Repeat("─", columns))
	for i, scene := range s.Scenes[:s.Scene+1] {
		if c := column(scene.Start, s.Planned, columns); c < columns {
			axis[c] = rune('1' + i)
		}
	}
	return append(lines, st.dim(fmt.Sprintf("%*s └%s", labelWidth, formatRate(math.Pow10(bottomDecade)), string(axis))))
}

// height returns the height of a rate in eighths of a row; every rate above 0 is visible.
func height(rate float64, rowsPerDecade int) int {
	if rate <= 0 {
		return 0
	}
	h := (math.Log10(rate) - bottomDecade) * float64(rowsPerDecade) * 8
	return max(int(math.Round(h)), 1)
}

// columnRates averages the rates over the time of each column; future columns are 0.
func columnRates(s State, columns int) []float64 {
	sums, counts := make([]float64, columns), make([]int, columns)
	for i, rate := range s.Rates {
		if c := column(time.Duration(i)*s.Tick, s.Planned, columns); c < columns {
			sums[c] += rate
			counts[c]++
		}
	}
	for c, n := range counts {
		if n > 0 {
			sums[c] /= float64(n)
		} else if c > 0 && time.Duration(len(s.Rates))*s.Tick > s.Planned*time.Duration(c)/time.Duration(columns) {
			sums[c] = sums[c-1] // the chart is wider than there are ticks
		}
	}
	return sums
}

// column returns the column of a time.
func column(t, planned time.Duration, columns int) int {
	if planned <= 0 {
		return 0
	}
	return int(int64(t) * int64(columns) / int64(planned))
}

// bar draws a horizontal bar in eighths of a cell.
func bar(fraction float64, width int) string {
	partly := [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}
	n := int(math.Round(min(max(fraction, 0), 1) * float64(width*8)))
	if n == 0 && fraction > 0 {
		n = 1
	}
	return strings.Repeat("█", n/8) + partly[n%8]
}
