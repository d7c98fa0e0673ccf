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

// Insert puts a part into a page, between the lines that mark its place. A page
// that is not there is made.
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

// Table is a table of Markdown, whose first row is the head.
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

// Points are those of a line, at (xs[i], ys[i]).
func Points(xs, ys []float64) plotter.XYs {
	points := make(plotter.XYs, len(xs))
	for i := range points {
		points[i] = plotter.XY{X: xs[i], Y: ys[i]}
	}
	return points
}

// Draw writes a picture of lines over common axes into a file, whose name must end in
// .svg: a name and plotter.XYs for each line. It has no background and is readable on
// light and on dark pages. With log the y axis is logarithmic, and every y positive.
func Draw(path, title, x, y string, log bool, lines ...any) error {
	grey := color.Gray{Y: 0x76} // readable on white and on black
	p := plot.New()
	p.BackgroundColor, p.Legend.Top = nil, true
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = grey, grey
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color, a.Label.TextStyle.Color, a.Tick.Label.Color = grey, grey, grey, grey
	}
	if log && len(lines) > 0 { // without points the axis would have zero in it
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return err
	}
	return p.Save(20*vg.Centimeter, 11*vg.Centimeter, path)
}
