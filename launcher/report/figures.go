package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/plural"
)

// figure is one chart on the page, with a table of its most important values.
type figure struct {
	Title string
	Alt   string // description of the chart for screen readers
	SVG   template.HTML
	Rows  []row
	Notes []string
	Marks []string // kinds of events marked in the chart, for its legend
	Host  bool     // true if the metric is the load of a host, such as CPU use
	Size  string   // value of the SVG's viewBox attribute
}

// row is a row of the table under a chart: values of one curve, as text.
type row struct{ Colour, Label, Last, Least, Greatest string }

// figures returns the charts of all metrics. The first loss metric with
// training steps gets two charts: over time and over steps.
func figures(runs []Run) (all []figure, err error) {
	overSteps := false
	for _, m := range metricsOf(runs) {
		over := []bool{false}
		if !overSteps && strings.Contains(strings.ToLower(m.name), "loss") && !m.host && m.hasSteps() {
			over, overSteps = append(over, true), true
		}
		for _, bySteps := range over {
			f, err := m.figure(runs, bySteps)
			if err != nil {
				return nil, fmt.Errorf("metric %s: %w", clean(m.name), err)
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// hasSteps reports whether at least one point of the metric has a training
// step.
func (m metric) hasSteps() bool {
	for _, s := range m.sources {
		for _, p := range s.Points {
			if p.Step >= 0 {
				return true
			}
		}
	}
	return false
}

// figure returns the chart of the metric over time, or over training steps if
// overSteps is true.
func (m metric) figure(runs []Run, overSteps bool) (figure, error) {
	c := m.chart(runs, overSteps)
	f := figure{Title: m.title(), Host: m.host, Size: fmt.Sprint("0 0 ", width, " ", height)}
	if overSteps {
		f.Title += " over steps"
	}
	if m.host && m.name == CPU && c.top == 0 {
		f.Title += ", processors in use"
	}
	for _, one := range c.curves {
		if one.notFinite > 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("%s: %s not finite.", one.label, are(one.notFinite)))
		}
		f.Rows = append(f.Rows, one.row(c.y))
	}
	f.Alt = f.alt(overSteps)
	svg, err := c.svg()
	if f.SVG = svg; svg == "" {
		return f, err
	}
	for _, kind := range markKinds() {
		if slices.ContainsFunc(c.marks, func(m mark) bool { return m.kind == kind }) {
			f.Marks = append(f.Marks, kind)
		}
	}
	return f, nil
}

// chart returns the curves, marks and units of the metric's chart.
func (m metric) chart(runs []Run, overSteps bool) chart {
	c := chart{curves: m.curves(runs, overSteps)}
	greatest := 0.0
	for _, one := range c.curves {
		if lo, hi, ok := one.extremes(); ok {
			greatest = max(greatest, math.Abs(lo), math.Abs(hi))
			c.end = max(c.end, one.dots[len(one.dots)-1].x)
		}
	}
	c.y, c.floor = countUnit(greatest), m.host
	switch {
	case !m.host:
	case m.name == Memory, m.name == GPUMemory:
		c.y = bytesUnit(greatest, "")
	case m.name == Received, m.name == Sent:
		c.y = bytesUnit(greatest, "/s")
	case m.name == GPU, processors(m.sources, runs) != nil:
		c.y, c.top = unit{1, " %"}, 100
	}
	if overSteps {
		c.x = countUnit(max(c.end, 1))
		return c
	}
	for _, run := range runs {
		c.marks = append(c.marks, marksOf(run, len(runs) > 1)...)
	}
	for _, m := range c.marks {
		c.end = max(c.end, m.x)
	}
	c.x = timeUnit(c.end)
	return c
}

// are returns a text such as "2 values are".
func are(n int) string {
	if n == 1 {
		return "1 value is"
	}
	return plural.Count(n, "value") + " are"
}

// row returns the last, smallest and greatest value of a curve as text in unit
// u.
func (c curve) row(u unit) row {
	out := row{Colour: colour(c.colour), Label: c.label, Last: "-", Least: "-", Greatest: "-"}
	if lo, hi, ok := c.extremes(); ok {
		out.Least, out.Greatest = u.text(lo), u.text(hi)
		if !c.band {
			out.Last = u.text(c.dots[len(c.dots)-1].y)
		}
	}
	return out
}

// alt returns a one-line description of the figure for screen readers.
func (f figure) alt(overSteps bool) string {
	over := " over time"
	if overSteps {
		over = ""
	}
	text := fmt.Sprintf("Chart of %s%s, %s", f.Title, over, plural.Count(len(f.Rows), "curve"))
	if len(f.Rows) > 0 {
		text += fmt.Sprintf("; %s: last %s, least %s, greatest %s", f.Rows[0].Label, f.Rows[0].Last, f.Rows[0].Least, f.Rows[0].Greatest)
	}
	return text
}

// curves returns the curves of the metric. For one run, each series is a
// curve; for several runs, each run is one.
func (m metric) curves(runs []Run, overSteps bool) (all []curve) {
	cpus := processors(m.sources, runs)
	of := func(s source) curve {
		factor, x := 1.0, seconds(runs[s.run].start())
		if m.host && m.name == CPU && cpus != nil {
			factor = 100 / cpus[hostOf{s.run, s.Host}]
		}
		if overSteps {
			x = steps
		}
		c := draw(s.Points, x, factor)
		c.label = s.label()
		return c
	}
	if len(runs) == 1 {
		for i, s := range m.sources {
			c := of(s)
			c.colour = i
			all = append(all, c)
		}
		if len(all) <= maxCurves {
			return all
		}
		others := curve{label: fmt.Sprintf("the other %d", len(all)-1), colour: 1, band: true, dots: grid(all[1:])}
		for _, c := range all[1:] {
			others.notFinite += c.notFinite
		}
		return []curve{all[0], others}
	}
	labels := labels(runs)
	for i := range runs {
		var own []curve
		for _, s := range m.sources {
			if s.run == i && (m.host || len(own) == 0) {
				own = append(own, of(s))
			}
		}
		switch len(own) {
		case 0:
			continue
		case 1:
			own[0].label, own[0].colour = labels[i], i
			all = append(all, own[0])
			continue
		}
		mean := curve{label: labels[i], colour: i, dots: grid(own)}
		for j := range mean.dots { // Omit the bands between smallest and greatest values: the bands of many runs would hide each other.
			mean.dots[j].lo, mean.dots[j].hi = mean.dots[j].y, mean.dots[j].y
		}
		for _, c := range own {
			mean.notFinite += c.notFinite
		}
		all = append(all, mean)
	}
	return all
}

// hostOf identifies a host of one run.
type hostOf struct {
	run  int
	name string
}

// processors returns the number of processors of each host in sources. It
// returns nil if at least one host did not report its number.
func processors(sources []source, runs []Run) map[hostOf]float64 {
	known := map[hostOf]float64{}
	for i, run := range runs {
		for _, s := range run.Series {
			if s.Task != "" || s.Name != CPUs || len(s.Points) == 0 {
				continue
			}
			if n := float64(s.Points[len(s.Points)-1].Last); n > 0 && finite(n) {
				known[hostOf{i, s.Host}] = n
			}
		}
	}
	for _, s := range sources {
		if known[hostOf{s.run, s.Host}] == 0 {
			return nil
		}
	}
	return known
}

// start returns the time at which the run's time axis begins: the job's
// creation, or the first point or event if the creation is not known.
func (r Run) start() time.Time {
	first := r.Created
	earlier := func(t time.Time) {
		if r.Created.IsZero() && !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, s := range r.Series {
		for _, p := range s.Points {
			earlier(p.Time)
		}
	}
	for _, e := range r.Events {
		earlier(e.Time)
	}
	return first
}

// labels returns a label for each run: the job's name if no other run has the
// same name, otherwise the job's id.
func labels(runs []Run) (all []string) {
	seen := map[string]int{}
	for _, run := range runs {
		seen[run.Name]++
	}
	for _, run := range runs {
		if run.Name != "" && seen[run.Name] == 1 {
			all = append(all, clean(run.Name))
		} else {
			all = append(all, clean(run.Job))
		}
	}
	return all
}
