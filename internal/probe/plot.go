package probe

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// point of a train: the packet's index, and milliseconds since the first packet was sent. Times of a peer's
// clock begin with the first arrival's least delay.
type point struct {
	packet int
	ms     float64
}

func (t Train) points() (sent, came []point) {
	var zeroSent, shift int64
	for i, r := range t.Replies {
		if r.Lost {
			continue
		}
		if len(sent) == 0 {
			zeroSent = r.SentNS
			if r.PeerNS != 0 {
				shift = r.PeerNS - r.SentNS - (r.ReceivedNS-r.SentNS)/2
			}
		}
		sent = append(sent, point{i, float64(r.SentNS-zeroSent) / 1e6})
		came = append(came, point{i, float64(r.Arrived()-shift-zeroSent) / 1e6})
	}
	return sent, came
}

// Draw writes the train as text, at most width columns and 12 lines: when each packet was sent
// (.) and answered (o).
func (t Train) Draw(w io.Writer, width int) error {
	const rows = 12
	columns := min(max(width-8, 20), 72)
	sent, came := t.points()
	if len(came) == 0 {
		return nil
	}
	most := math.SmallestNonzeroFloat64
	for _, p := range came {
		most = max(most, p.ms)
	}
	cells := make([][]byte, rows)
	for i := range cells {
		cells[i] = []byte(strings.Repeat(" ", columns))
	}
	put := func(points []point, mark byte) {
		for _, p := range points {
			x := min(max(int(p.ms/most*float64(columns-1)), 0), columns-1)
			y := p.packet * (rows - 1) / max(len(t.Replies)-1, 1)
			cells[rows-1-y][x] = mark
		}
	}
	put(sent, '.')
	put(came, 'o')
	var b strings.Builder
	for i, row := range cells {
		label := ""
		switch i {
		case 0:
			label = fmt.Sprint(len(t.Replies))
		case rows - 1:
			label = "1"
		}
		fmt.Fprintf(&b, "%6s |%s\n", label, strings.TrimRight(string(row), " "))
	}
	fmt.Fprintf(&b, "packet +%s\n        0 ms%*s\n        . sent   o answered\n", strings.Repeat("-", columns), columns-4, fmt.Sprintf("%.4g ms", most))
	_, err := io.WriteString(w, b.String())
	return err
}

// These types are the SVG's elements. The library escapes special characters.
type (
	svgRoot struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		ViewBox string   `xml:"viewBox,attr"`
		Font    string   `xml:"font-family,attr"`
		Size    int      `xml:"font-size,attr"`
		Lines   []svgLine
		Dots    []svgDot
		Texts   []svgText
	}
	svgLine struct {
		XMLName xml.Name `xml:"line"`
		X1      float64  `xml:"x1,attr"`
		Y1      float64  `xml:"y1,attr"`
		X2      float64  `xml:"x2,attr"`
		Y2      float64  `xml:"y2,attr"`
		Stroke  string   `xml:"stroke,attr"`
	}
	svgDot struct {
		XMLName xml.Name `xml:"circle"`
		X       float64  `xml:"cx,attr"`
		Y       float64  `xml:"cy,attr"`
		R       float64  `xml:"r,attr"`
		Fill    string   `xml:"fill,attr"`
	}
	svgText struct {
		XMLName xml.Name `xml:"text"`
		X       float64  `xml:"x,attr"`
		Y       float64  `xml:"y,attr"`
		Anchor  string   `xml:"text-anchor,attr"`
		Fill    string   `xml:"fill,attr"`
		Text    string   `xml:",chardata"`
	}
)

// SVG writes the train as a picture with a title.
func (t Train) SVG(w io.Writer, title string) error {
	const width, height, left, bottom, top = 720.0, 420.0, 60.0, 50.0, 40.0
	const blue, orange, black = "#0072b2", "#d55e00", "#000000"
	sent, came := t.points()
	most := math.SmallestNonzeroFloat64
	for _, p := range came {
		most = max(most, p.ms)
	}
	root := svgRoot{ViewBox: fmt.Sprintf("0 0 %g %g", width, height), Font: "sans-serif", Size: 13}
	x := func(ms float64) float64 { return round(left + ms/most*(width-left-20)) }
	y := func(i float64) float64 {
		return round(height - bottom - i/float64(max(len(t.Replies), 1))*(height-bottom-top))
	}
	root.Lines = []svgLine{
		{X1: left, Y1: y(0), X2: width - 20, Y2: y(0), Stroke: black},
		{X1: left, Y1: y(0), X2: left, Y2: top, Stroke: black},
	}
	for _, series := range []struct {
		points []point
		colour string
	}{{sent, blue}, {came, orange}} {
		for _, p := range series.points {
			root.Dots = append(root.Dots, svgDot{X: x(p.ms), Y: y(float64(p.packet + 1)), R: 1.8, Fill: series.colour})
		}
	}
	root.Texts = []svgText{
		{X: width / 2, Y: 24, Anchor: "middle", Fill: black, Text: title},
		{X: left, Y: height - bottom + 18, Anchor: "middle", Fill: black, Text: "0"},
		{X: width - 20, Y: height - bottom + 18, Anchor: "end", Fill: black, Text: fmt.Sprintf("%.4g ms", most)},
		{X: left - 6, Y: top + 5, Anchor: "end", Fill: black, Text: fmt.Sprint(len(t.Replies))},
		{X: left - 6, Y: y(0), Anchor: "end", Fill: black, Text: "packet"},
		{X: left + 20, Y: height - 10, Anchor: "start", Fill: blue, Text: "sent"},
		{X: left + 70, Y: height - 10, Anchor: "start", Fill: orange, Text: "answered"},
	}
	text, err := xml.MarshalIndent(root, "", " ")
	if err != nil {
		return fmt.Errorf("draw the train: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func round(v float64) float64 { return math.Round(v*100) / 100 }
