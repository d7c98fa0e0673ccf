package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-analyze/charts/chartdraw"
)

// Sizes in the units of the SVG's viewBox. The page shows a chart 300 to 800
// pixels wide.
const (
	width, height = 880, 440
	fontSize      = 26
	tickHeight    = 16 // height of a mark that is drawn as a short tick at the bottom
)

// mark is a vertical line in a chart. It shows the time of an event, such as a
// restart.
type mark struct {
	x     float64
	kind  string // kind of the event, one of markKinds
	short bool   // true if the mark is only a short tick at the bottom of the chart
}

// markKinds returns the kinds of marks in the order of the legend. The kinds
// are also the CSS classes of the marks.
func markKinds() []string { return []string{"checkpoint", "restart", "hang", "failure", "end"} }

// chart is the content of one chart: the curves of a metric, and marks for
// events.
type chart struct {
	curves []curve
	marks  []mark
	x, y   unit
	floor  bool    // true if the y axis begins at 0
	top    float64 // the y axis ends at this value or above
	end    float64 // the x axis ends at this value or above
}

// axis is the range of values of an axis, together with its ticks.
type axis struct {
	chartdraw.ContinuousRange
	ticks []chartdraw.Tick
}

// GetTicks implements chartdraw.TicksProvider.
func (a *axis) GetTicks(chartdraw.ValueFormatter) []chartdraw.Tick { return a.ticks }

// newAxis returns an axis from least to greatest with about n ticks. If loose
// is true, newAxis extends the axis so that both ends are ticks.
func newAxis(least, greatest float64, u unit, n int, loose bool) *axis {
	least, greatest = least/u.scale, greatest/u.scale
	if size := max(math.Abs(least), math.Abs(greatest)); greatest-least <= size*1e-9 || greatest-least < 1e-290 {
		pad := size / 10
		if pad < 1e-290 {
			pad = 1
		}
		if greatest += pad; loose && least != 0 {
			least -= pad
		}
	}
	step := niceStep((greatest - least) / float64(n))
	if loose {
		least, greatest = math.Floor(least/step+1e-9)*step, math.Ceil(greatest/step-1e-9)*step
	}
	decimals := max(0, min(12, int(-math.Floor(math.Log10(step)+1e-9))))
	a := &axis{ContinuousRange: chartdraw.ContinuousRange{Min: least * u.scale, Max: greatest * u.scale}}
	for i := math.Ceil(least/step - 1e-9); i*step <= greatest+step*1e-6 && len(a.ticks) < 20; i++ {
		label := strconv.FormatFloat(i*step, 'f', decimals, 64)
		switch {
		case i == 0:
			label = "0"
		case math.Abs(i*step) >= 1e9:
			label = strconv.FormatFloat(i*step, 'e', 2, 64)
		}
		if i != 0 {
			label += u.suffix
		}
		a.ticks = append(a.ticks, chartdraw.Tick{Value: i * step * u.scale, Label: label})
	}
	return a
}

// niceStep returns the smallest number at or above step that is 1, 2 or 5
// times a power of ten.
func niceStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= step*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// svg returns the chart as the content of an SVG element, without the
// element's own tags.
func (c chart) svg() (template.HTML, error) {
	leastX, greatestX := 0.0, c.end
	leastY, greatestY := math.Inf(1), math.Inf(-1)
	for _, one := range c.curves {
		for _, d := range one.dots {
			leastX, greatestX = min(leastX, d.x), max(greatestX, d.x)
			leastY, greatestY = min(leastY, d.lo), max(greatestY, d.hi)
		}
	}
	if greatestY < leastY {
		return "", nil
	}
	if leastY > 0 && (c.floor || leastY < greatestY/4) {
		leastY = 0
	}
	x, y := newAxis(leastX, greatestX, c.x, 5, false), newAxis(leastY, max(greatestY, c.top), c.y, 5, true)
	text := chartdraw.Style{ClassName: "axis", FontStyle: chartdraw.FontStyle{FontSize: fontSize}}
	class := func(name string) chartdraw.Style { return chartdraw.Style{ClassName: name} }
	drawn := chartdraw.Chart{
		Width: width, Height: height, DPI: 81, // 1/8 above the usual 72, to leave more room for text: the browser's font may be wider than the library's
		Background: chartdraw.Style{ClassName: "back", Padding: chartdraw.Box{Top: 14, Left: 8, Right: 30, Bottom: 8, IsSet: true}},
		Canvas:     class("back"),
		XAxis:      chartdraw.XAxis{Style: text, Range: x, GridMajorStyle: chartdraw.Hidden(), GridMinorStyle: chartdraw.Hidden()},
		// The visible y axis is the library's secondary axis; hide its primary
		// axis.
		YAxis:          chartdraw.YAxis{Style: chartdraw.Hidden(), Range: &chartdraw.ContinuousRange{Max: 1}},
		YAxisSecondary: chartdraw.YAxis{Style: text, Range: y, Zero: chartdraw.GridLine{Style: chartdraw.Hidden()}, GridMajorStyle: chartdraw.Hidden(), GridMinorStyle: chartdraw.Hidden()},
		Series:         []chartdraw.Series{layer(func(p plot) { p.grid(y.ticks); p.marks(c.marks); p.curves(c.curves) })},
	}
	var out bytes.Buffer
	if err := drawn.Render(chartdraw.SVG, &out); err != nil {
		return "", fmt.Errorf("draw chart: %w", err)
	}
	_, inner, _ := strings.Cut(out.String(), ">")
	return template.HTML(strings.TrimSuffix(inner, "</svg>")), nil //nolint:gosec // it holds numbers and units only
}

// layer is a function that draws into the plot. It implements
// chartdraw.Series.
type layer func(plot)

// GetName returns no name; chartdraw.Series requires the method.
func (layer) GetName() string { return "" }

// GetYAxis returns the visible y axis; chartdraw.Series requires the method.
func (layer) GetYAxis() chartdraw.YAxisType { return chartdraw.YAxisSecondary }

// GetStyle returns the default style; chartdraw.Series requires the method.
func (layer) GetStyle() chartdraw.Style { return chartdraw.Style{} }

// Validate always succeeds; chartdraw.Series requires the method.
func (layer) Validate() error { return nil }

// Render draws the layer; chartdraw.Series requires the method.
func (l layer) Render(r chartdraw.Renderer, box chartdraw.Box, x, y chartdraw.Range, _ chartdraw.Style) {
	r.ResetStyle()
	l(plot{r, box, x, y})
}

// plot is the area of a chart between its axes.
type plot struct {
	chartdraw.Renderer
	box  chartdraw.Box
	x, y chartdraw.Range
}

// at returns the pixel coordinates of the point with the values x and y.
func (p plot) at(x, y float64) (int, int) {
	return p.box.Left + p.x.Translate(x), p.box.Bottom - p.y.Translate(y)
}

// line draws a straight line with the given CSS class.
func (p plot) line(class string, x0, y0, x1, y1 int) {
	p.SetClassName(class)
	p.MoveTo(x0, y0)
	p.LineTo(x1, y1)
	p.Stroke()
}

func (p plot) grid(ticks []chartdraw.Tick) {
	for _, tick := range ticks {
		_, y := p.at(0, tick.Value)
		p.line("grid", p.box.Left, y, p.box.Right, y)
	}
}

// marks draws the marks. In each pixel column, it draws at most one mark of
// each kind.
func (p plot) marks(all []mark) {
	type column struct {
		x    int
		kind string
	}
	drawn := map[column]bool{}
	for _, m := range all {
		x, _ := p.at(m.x, 0)
		if key := (column{x, m.kind}); drawn[key] || x < p.box.Left || x > p.box.Right {
			continue
		} else {
			drawn[key] = true
		}
		top := p.box.Top
		if m.short {
			top = p.box.Bottom - tickHeight
		}
		p.line("mark "+m.kind, x, p.box.Bottom, x, top)
	}
}

// curves draws all curves as lines. Behind each line it draws a band between
// the smallest and the greatest values that the line's dots summarize.
func (p plot) curves(all []curve) {
	for i, c := range all {
		all[i].dots = thin(c.dots)
		if len(all) <= maxCurves { // no bands with more curves, because the bands would hide each other
			p.bands(all[i])
		}
	}
	for _, c := range slices.Backward(all) { // draw the first curve last, so that it is on top
		if !c.band {
			p.curve(c)
		}
	}
}

// pieces calls the function do for each part of a curve between two gaps.
func pieces(dots []dot, do func([]dot)) {
	for len(dots) > 0 {
		n := 1
		for n < len(dots) && !dots[n].gap {
			n++
		}
		do(dots[:n])
		dots = dots[n:]
	}
}

// bands fills the area between the smallest and the greatest values that the
// curve's dots summarize.
func (p plot) bands(c curve) {
	pieces(c.dots, func(dots []dot) {
		if !c.band && !slices.ContainsFunc(dots, func(d dot) bool { return d.hi > d.lo }) {
			return
		}
		p.SetClassName("band " + colour(c.colour))
		p.MoveTo(p.at(dots[0].x, dots[0].hi))
		for _, d := range dots[1:] {
			p.LineTo(p.at(d.x, d.hi))
		}
		for _, d := range slices.Backward(dots) {
			p.LineTo(p.at(d.x, d.lo))
		}
		p.Close()
		p.Fill()
	})
}

// curve draws lines between successive dots. A dot that has gaps on both sides
// becomes a circle.
func (p plot) curve(c curve) {
	pieces(c.dots, func(dots []dot) {
		if len(dots) == 1 {
			p.SetClassName("point " + colour(c.colour))
			x, y := p.at(dots[0].x, dots[0].y)
			p.Circle(5, x, y)
			p.Fill()
		}
	})
	p.SetClassName("line " + colour(c.colour))
	lines := 0
	pieces(c.dots, func(dots []dot) {
		if len(dots) == 1 {
			return
		}
		lines++
		p.MoveTo(p.at(dots[0].x, dots[0].y))
		for _, d := range dots[1:] {
			p.LineTo(p.at(d.x, d.y))
		}
	})
	if lines > 0 {
		p.Stroke()
	}
}

// colours is the number of colours on the page. Curves from this number on
// repeat the colours with dashed lines.
const colours = 8

// colour returns the CSS classes for the i-th curve.
func colour(i int) string {
	class := "c" + strconv.Itoa(i%colours)
	if dashes := i / colours % 3; dashes > 0 {
		class += " d" + strconv.Itoa(dashes)
	}
	return class
}

// marksOf returns the marks for a run's events. If short is true, it makes all
// marks short ticks and omits checkpoints and the end.
func marksOf(run Run, short bool) (all []mark) {
	checkpoints := 0
	// failed is true after the first failure of a generation (run of all
	// tasks). After a failure, plx ends the other tasks, and their exits get
	// no marks.
	failed := false
	for _, e := range run.Events {
		kind := ""
		switch e.Kind {
		case Checkpoint:
			kind = "checkpoint"
			checkpoints++
		case Restarted:
			kind, failed = "restart", false
		case Hung:
			kind = "hang"
		case Ended:
			kind = "end"
		case Exited:
			if !strings.Contains(e.Text, "status 0") && !failed {
				kind, failed = "failure", true
			}
		}
		if kind == "" || e.Time.IsZero() || short && (kind == "checkpoint" || kind == "end") {
			continue
		}
		all = append(all, mark{e.Time.Sub(run.start()).Seconds(), kind, short})
	}
	if checkpoints > 12 {
		for i := range all {
			all[i].short = all[i].short || all[i].kind == "checkpoint"
		}
	}
	slices.SortStableFunc(all, func(a, b mark) int { return cmp.Compare(a.x, b.x) })
	return all
}
