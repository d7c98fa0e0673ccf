// Package lines draws lines over common axes, for the pages of benchmarks and
// examples. A picture has no background: it is readable on light and on dark pages.
package lines

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Plot is one picture. It is for one goroutine.
type Plot struct {
	plot  *plot.Plot
	lines []any // names and points, as plotutil.AddLinePoints takes them
}

// New returns a picture without lines.
func New(title, x, y string) *Plot {
	grey := color.Gray{Y: 0x76} // readable on white and on black
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = grey, grey
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = grey, grey
		a.Label.TextStyle.Color, a.Tick.Label.Color = grey, grey
	}
	p.Legend.Top = true
	return &Plot{plot: p}
}

// LogY gives the y axis a logarithmic scale. Every y must then be positive.
func (p *Plot) LogY() {
	p.plot.Y.Scale, p.plot.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

// Add adds a line through the points (xs[i], ys[i]). A line without points is left
// out.
func (p *Plot) Add(name string, xs, ys []float64) {
	if len(xs) == 0 {
		return
	}
	points := make(plotter.XYs, len(xs))
	for i := range points {
		points[i] = plotter.XY{X: xs[i], Y: ys[i]}
	}
	p.lines = append(p.lines, name, points)
}

// SaveSVG writes the picture into a file, whose name must end in .svg.
func (p *Plot) SaveSVG(path string) error {
	if err := plotutil.AddLinePoints(p.plot, p.lines...); err != nil {
		return err
	}
	return p.plot.Save(20*vg.Centimeter, 11*vg.Centimeter, path)
}
