package bench

import (
	"fmt"
	"io"
	"slices"
)

// Mark returns the mark behind a figure: * if it is required and was missed.
func (f *CellFigures) Mark(figure string) string {
	if slices.Contains(f.Missed, figure) {
		return "*"
	}
	return " "
}

// PrintRates prints the name and the columns IP, payload, link and first second. The values are parts of the limit,
// or MB/s without a limit.
func (f *CellFigures) PrintRates(out io.Writer, marks [4]string) {
	rates := []float64{f.IPRatio, f.PayloadRatio, f.LinkRatio, f.FirstRatio}
	format := "%8.4f"
	if f.Rate == 0 {
		rates = []float64{f.SteadyIP / 1e6, f.SteadyPayload / 1e6, 0, f.FirstIP / 1e6}
		format = "%8.0f"
	}
	fmt.Fprintf(out, "%-34s", f.Name)
	for i, r := range rates {
		text := fmt.Sprintf(format, r)
		if r == 0 {
			text = fmt.Sprintf("%8s", "-")
		}
		fmt.Fprintf(out, " %s%s", text, marks[i])
	}
}

// PrintPath prints the figures of a path with distance, and whether the machine disturbed the cell.
func (f *CellFigures) PrintPath(out io.Writer) {
	if f.Cell.Distant() {
		text := fmt.Sprintf("%.4f", f.SentRatio)
		if f.Rate == 0 {
			text = fmt.Sprintf("%.1f MB/s", f.Sent/1e6)
		}
		fmt.Fprintf(out, "  sent %s, path lost %d, dropped %d", text, f.PathLost, f.PathDropped)
	}
	if f.stoodStill() {
		late := max(f.GapMillis, f.PathLateMillis)
		if f.UDP != nil {
			late = max(late, f.UDP.LateMillis)
		}
		fmt.Fprintf(out, "  machine stood still for %d ms", late)
	}
	if f.MachineDropped > 0 {
		fmt.Fprintf(out, "  machine dropped %d packets", f.MachineDropped)
	}
}
