// Package chart draws the plots of the experiments as SVG: curves over time, and levels for comparison. It owns
// their looks, never their figures.
package chart

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// XY is a point.
type XY = plotter.XY

// Curve is a line, or dots, with a name for the legend.
type Curve struct {
	Name   string
	Points []XY
	Dots   bool
}

// Chart is one plot.
type Chart struct {
	Title, X, Y string
	LogX, LogY  bool
	YMax        float64 // 0 = from the points
	Curves      []Curve
	Levels      map[string]float64 // dashed horizontal lines, by name
}

// colours returns colours that the colour-blind can distinguish, too (Okabe and Ito).
func colours() []color.Color {
	return []color.Color{
		color.RGBA{0, 114, 178, 255},
		color.RGBA{213, 94, 0, 255},
		color.RGBA{0, 158, 115, 255},
		color.RGBA{204, 121, 167, 255},
		color.RGBA{230, 159, 0, 255},
		color.RGBA{86, 180, 233, 255},
		color.RGBA{0, 0, 0, 255},
	}
}

const width, height = 16 * vg.Centimeter, 8 * vg.Centimeter

// Save draws the chart into a file.
func (c Chart) Save(path string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top = true
	p.BackgroundColor = color.White
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{230}, color.Gray{230}
	p.Add(grid)
	palette := colours()
	for i, curve := range c.Curves {
		if err := add(p, curve, palette[i%len(palette)]); err != nil {
			return err
		}
	}
	i := 0
	for name, y := range c.Levels {
		f := plotter.NewFunction(func(float64) float64 { return y })
		f.Dashes, f.Color = []vg.Length{vg.Points(4), vg.Points(3)}, color.Gray{uint8(40 * min(i, 4))}
		p.Add(f)
		p.Legend.Add(name, f)
		if !c.LogY {
			p.Y.Max = math.Max(p.Y.Max, y*1.1)
		}
		i++
	}
	if c.YMax > 0 {
		p.Y.Max = c.YMax
	}
	if err := p.Save(width, height, path); err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return nil
}

func add(p *plot.Plot, curve Curve, colour color.Color) error {
	if len(curve.Points) == 0 {
		return nil
	}
	points := plotter.XYs(curve.Points)
	if curve.Dots {
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("curve %q: %w", curve.Name, err)
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(1.2), Shape: draw.CircleGlyph{}}
		p.Add(dots)
		p.Legend.Add(curve.Name, dots)
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("curve %q: %w", curve.Name, err)
	}
	line.Color, line.Width = colour, vg.Points(1)
	p.Add(line)
	p.Legend.Add(curve.Name, line)
	return nil
}
