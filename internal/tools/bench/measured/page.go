package measured

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Insert replaces one section of a page by part: the text between the two
// marker lines that contain name. It creates the page if it does not exist.
func Insert(path, name, part string) error {
	begin, end := fmt.Sprintf("<!-- %s: begin -->\n", name), fmt.Sprintf("<!-- %s: end -->\n", name)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte("# Benchmarks\n\n"+begin+end), nil
	}
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s: the lines %q and %q are not there", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+part+end+after), 0o644)
}

// Table returns a Markdown table. The first row is its header.
func Table(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		for _, cell := range row {
			b.WriteString(strings.TrimRight("| "+cell, " ") + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

// Points returns the points (xs[i], ys[i]) of a line.
func Points(xs, ys []float64) plotter.XYs {
	points := make(plotter.XYs, len(xs))
	for i := range points {
		points[i] = plotter.XY{X: xs[i], Y: ys[i]}
	}
	return points
}

// Draw plots lines over common axes and writes an SVG file; path must end in
// .svg. For each line, the parameter lines contains a name followed by a
// plotter.XYs. The plot has no background and is readable on light and dark
// pages. If log is true, the y axis is logarithmic and every y must be
// positive.
func Draw(path, title, x, y string, log bool, lines ...any) error {
	grey := color.Gray{Y: 0x76} // this grey is readable on white and on black
	p := plot.New()
	p.BackgroundColor, p.Legend.Top = nil, true
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = grey, grey
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color, a.Label.TextStyle.Color, a.Tick.Label.Color = grey, grey, grey, grey
	}
	if log && len(lines) > 0 { // a logarithmic axis without points would include zero, which is not allowed
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return err
	}
	return p.Save(20*vg.Centimeter, 11*vg.Centimeter, path)
}
