package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/metrics"
)

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if strings.EqualFold(a.Key, name) {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			out.WriteString(d.Data)
		}
	}
	return out.String()
}

// elements returns all elements with the given tag below n.
func elements(n *html.Node, tag string) (all []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == tag {
			all = append(all, d)
		}
	}
	return all
}

// figureOf returns the figure with the given title.
func figureOf(t *testing.T, page *html.Node, title string) *html.Node {
	t.Helper()
	for _, f := range elements(page, "figure") {
		if text(elements(f, "figcaption")[0]) == title {
			return f
		}
	}
	t.Fatalf("no figure %s", title)
	return nil
}

type pixel struct{ x, y float64 }

// path returns the points of an SVG path in pixels. starts has the index of
// the first point of each connected part.
func path(t *testing.T, d string) (all []pixel, starts []int) {
	t.Helper()
	for command := range strings.Lines(d) {
		var p pixel
		var c string
		if strings.TrimSpace(command) == "Z" {
			continue
		}
		if _, err := fmt.Sscan(command, &c, &p.x, &p.y); err != nil {
			t.Fatalf("%q: %v", command, err)
		}
		if c == "M" {
			starts = append(starts, len(all))
		}
		all = append(all, p)
	}
	return all, starts
}

// drawn returns the elements of a figure that have the given CSS class.
func drawn(f *html.Node, class string) (all []*html.Node) {
	for d := range f.Descendants() {
		if d.Type == html.ElementNode && attr(d, "class") == class && d.Parent.Data == "svg" {
			all = append(all, d)
		}
	}
	return all
}

// scales returns functions that convert pixels to values on the x and y axes.
// It derives them from the first and the last label of each axis.
func scales(t *testing.T, f *html.Node) (x, y func(float64) float64) {
	t.Helper()
	type tick struct{ at, value float64 }
	var xs, ys []tick
	for _, label := range drawn(f, "axis text") {
		line, _ := path(t, attr(label.PrevSibling, "d"))
		word := text(label)
		number, unit, _ := strings.Cut(word, " ")
		factor := 1.0
		if strings.HasSuffix(number, "k") {
			number, factor = number[:len(number)-1], 1e3
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("label %q: %v", word, err)
		}
		switch unit {
		case "min":
			factor = 60
		case "h":
			factor = 3600
		case "GiB":
			factor = 1 << 30
		case "MiB/s":
			factor = 1 << 20
		}
		if line[0].x == line[1].x {
			xs = append(xs, tick{line[0].x, v * factor})
		} else {
			ys = append(ys, tick{line[0].y, v * factor})
		}
	}
	scale := func(ticks []tick) func(float64) float64 {
		if len(ticks) < 2 || len(ticks) > 12 {
			t.Fatalf("%d ticks", len(ticks))
		}
		a, b := ticks[0], ticks[len(ticks)-1]
		return func(at float64) float64 { return a.value + (at-a.at)/(b.at-a.at)*(b.value-a.value) }
	}
	return scale(xs), scale(ys)
}

// The points of a curve are at the right place according to the labels of the
// axes.
func TestCurveMatchesTheAxisLabels(t *testing.T) {
	for _, test := range []struct {
		name, title, task string
		every             float64
		f                 func(i int) float64
	}{
		{"loss", "loss", "worker:0", 30, func(i int) float64 { return 2.5 - 0.07*float64(i) }},
		{"lr", "lr", "worker:0", 300, func(i int) float64 { return 3e-4 / float64(i+1) }},
		{"tokens_per_second", "tokens_per_second", "worker:0", 1, func(i int) float64 { return 125000 + float64(i%7)*500 }},
		{"balance", "balance", "worker:0", 1, func(i int) float64 { return float64(i%5) - 2 }},
		{Memory, "memory", "", 1000, func(i int) float64 { return float64(i+3) * 1e9 }},
		{Received, "network received", "", 20, func(i int) float64 { return float64(i%4) * 3e7 }},
	} {
		run := Run{Job: "job", Created: start, Series: []Series{{test.name, "gpu01", test.task, points(30, test.every, test.f)}}}
		_, page := render(t, []Run{run})
		f := figureOf(t, page, test.title)
		x, y := scales(t, f)
		lines := drawn(f, "line c0")
		if len(lines) != 1 {
			t.Fatalf("%s: %d lines", test.name, len(lines))
		}
		got, _ := path(t, attr(lines[0], "d"))
		if len(got) != 30 {
			t.Fatalf("%s: %d points", test.name, len(got))
		}
		dx, dy := math.Abs(x(1)-x(0)), math.Abs(y(1)-y(0))
		for i, p := range got {
			if wantX := float64(i) * test.every; math.Abs(x(p.x)-wantX) > 2*dx {
				t.Errorf("%s: point %d is at %g, want %g: %.1f pixels off", test.name, i, x(p.x), wantX, (x(p.x)-wantX)/dx)
			}
			if math.Abs(y(p.y)-test.f(i)) > 2*dy {
				t.Errorf("%s: point %d has %g, want %g: %.1f pixels off", test.name, i, y(p.y), test.f(i), (y(p.y)-test.f(i))/dy)
			}
		}
	}
}

// The CPU chart is in percent if the number of processors of every host is
// known.
func TestCPUInPercent(t *testing.T) {
	cpu := func(host string) Series {
		return Series{Name: CPU, Host: host, Points: points(3, 5, func(int) float64 { return 16 })}
	}
	cpus := func(host string, n float64) Series {
		return Series{Name: CPUs, Host: host, Points: points(1, 5, func(int) float64 { return n })}
	}
	run := Run{Job: "job", Created: start, Series: []Series{cpu("a"), cpus("a", 64), cpu("b"), cpus("b", 32)}}
	_, page := render(t, []Run{run})
	if got := text(figureOf(t, page, "CPU")); !strings.Contains(got, "a25 %25 %25 %") || !strings.Contains(got, "b50 %50 %50 %") {
		t.Errorf("%q has no 25 %% and 50 %%", got)
	}
	run.Series = run.Series[:3]
	_, page = render(t, []Run{run})
	if got := text(figureOf(t, page, "CPU, processors in use")); !strings.Contains(got, "a161616") {
		t.Errorf("%q has no 16", got)
	}
}

// NaN and infinite values leave a gap in the curve, and the page shows their
// number.
func TestNonFiniteValuesLeaveAGap(t *testing.T) {
	values := []float64{1, 2, math.NaN(), 3, 2, math.Inf(1), math.Inf(-1), 5}
	run := Run{Job: "job", Created: start, Series: []Series{{"loss", "a", "worker:0", points(len(values), 1, func(i int) float64 { return values[i] })}}}
	written, page := render(t, []Run{run})
	f := figureOf(t, page, "loss")
	got, starts := path(t, attr(drawn(f, "line c0")[0], "d"))
	if len(got) != 4 || !slices.Equal(starts, []int{0, 2}) || len(drawn(f, "point c0")) != 1 {
		t.Errorf("%d points of lines that begin at %d, and %d circles", len(got), starts, len(drawn(f, "point c0")))
	}
	if !strings.Contains(text(f), "worker:0: 3 values are not finite.") {
		t.Errorf("the figure does not say how many values are missing: %s", text(f))
	}
	if strings.Contains(written, "NaN") {
		t.Error("NaN in the chart")
	}
}

// Charts with very few points or extreme values can be drawn.
func TestExtremeValuesAreDrawn(t *testing.T) {
	odd := map[string][]float64{
		"single": {7}, "zero": {0, 0, 0}, "equal": {3, 3}, "nan": {math.NaN(), math.NaN()},
		"huge": {-math.MaxFloat64, math.MaxFloat64}, "tiny": {5e-324, 1e-310}, "near": {1, 1 + 1e-15}, "large": {1e18, 3e18},
	}
	for name, values := range odd {
		run := Run{Job: "job", Created: start, Series: []Series{{name, "a", "worker:0", points(len(values), 0, func(i int) float64 { return values[i] })}}}
		for _, runs := range [][]Run{{run}, {run, run}, {run, {Job: "other"}}, {{Job: "no time", Series: run.Series}}} {
			written, page := render(t, runs)
			f := figureOf(t, page, name)
			if name == "nan" {
				if len(elements(f, "svg")) != 0 || !strings.Contains(text(f), "No value can be drawn.") {
					t.Errorf("%s: %s", name, text(f))
				}
				continue
			}
			if len(drawn(f, "line c0"))+len(drawn(f, "point c0")) == 0 {
				t.Errorf("%s: nothing is drawn", name)
			}
			for _, p := range append(elements(f, "path"), elements(f, "circle")...) {
				got := []pixel{}
				if d := attr(p, "d"); d != "" {
					got, _ = path(t, d)
				} else {
					got = append(got, pixel{parse(t, attr(p, "cx")), parse(t, attr(p, "cy"))})
				}
				for _, at := range got {
					if at.x < 0 || at.x > width || at.y < 0 || at.y > height {
						t.Errorf("%s: %v lies outside of the chart", name, at)
					}
				}
			}
			if strings.Contains(written, "Inf") {
				t.Errorf("%s: Inf on the page", name)
			}
		}
	}
}

func parse(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// naiveThin is a simple, slow version of thin for dots without gaps.
func naiveThin(dots []dot) (kept []dot) {
	for r := range 100 {
		part := dots[r*len(dots)/100 : (r+1)*len(dots)/100]
		least := slices.MinFunc(part, func(a, b dot) int { return compareFloats(a.y, b.y) })
		greatest := slices.MaxFunc(part, func(a, b dot) int { return compareFloats(a.y, b.y) })
		for _, d := range part {
			if d == part[0] || d == least || d == greatest || d == part[len(part)-1] {
				kept = append(kept, d)
			}
		}
	}
	return kept
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestThinKeepsExtremes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		dots := make([]dot, 1+rnd.IntN(3000))
		for i := range dots {
			y := rnd.NormFloat64()
			dots[i] = dot{x: float64(i), y: y, lo: y - rnd.Float64(), hi: y + rnd.Float64()}
		}
		want := dots
		if len(dots) > maxDots {
			want = naiveThin(dots)
		}
		got := thin(dots)
		if len(got) > maxDots || len(got) != len(want) {
			t.Fatalf("%d of %d dots, want %d", len(got), len(dots), len(want))
		}
		from := 0
		for i, d := range got {
			w, to := want[i], int(want[i].x)
			for _, left := range dots[from : to+1] {
				w.lo, w.hi = min(w.lo, left.lo), max(w.hi, left.hi)
			}
			if from = to + 1; d != w {
				t.Fatalf("dot %d is %+v, want %+v", i, d, w)
			}
		}
	}
	gaps := make([]dot, 1000)
	for i := range gaps {
		gaps[i] = dot{x: float64(i), gap: i == 503}
	}
	kept := thin(gaps)
	if i := slices.IndexFunc(kept, func(d dot) bool { return d.gap }); i < 0 || kept[i-1].x >= 503 || kept[i].x < 503 {
		t.Error("the gap is lost")
	}
}

// With more than 8 tasks, the chart shows the first task as a curve and the
// others as a band.
func TestManyTasksBecomeABand(t *testing.T) {
	run := Run{Job: "job", Created: start}
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(12) {
		run.Series = append(run.Series, Series{"loss", "a", fmt.Sprint("worker:", i+2), points(50, 10, func(int) float64 { return float64(i) })})
	}
	_, page := render(t, []Run{run})
	f := figureOf(t, page, "loss")
	if n := len(drawn(f, "line c0")); n != 1 || len(drawn(f, "band c1")) != 1 || len(drawn(f, "line c1")) != 0 {
		t.Errorf("%d lines and %d bands", n, len(drawn(f, "band c1")))
	}
	if got := text(f); !strings.Contains(got, "worker:2000") || !strings.Contains(got, "the other 11-111") {
		t.Errorf("the table of %q lacks the first worker or the others", got)
	}
	_, y := scales(t, f)
	band, _ := path(t, attr(drawn(f, "band c1")[0], "d"))
	least, greatest := math.Inf(1), math.Inf(-1)
	for _, p := range band {
		least, greatest = min(least, y(p.y)), max(greatest, y(p.y))
	}
	if math.Abs(least-1) > 0.1 || math.Abs(greatest-11) > 0.1 {
		t.Errorf("the band is from %g to %g, want 1 to 11", least, greatest)
	}
}

// The mean over hosts uses the newest value of each host, even if the hosts
// report at different times.
func TestMeanUsesTheNewestValueOfEachHost(t *testing.T) {
	shifted := func(by, every, value float64) (c curve) {
		for x := by; x < 500; x += every {
			c.dots = append(c.dots, dot{x: x, y: value, lo: value, hi: value})
		}
		return c
	}
	dots := grid([]curve{shifted(0, 5, 10), shifted(2, 5, 20), shifted(1, 11, 60)})
	for i, d := range dots {
		if i > 0 && i < len(dots)-2 && (math.Abs(d.y-30) > 1e-9 || d.lo != 10 || d.hi != 60) {
			t.Errorf("cell %d of %d is %+v, want 30 between 10 and 60", i, len(dots), d)
		}
	}
	if len(dots) != 100 {
		t.Errorf("%d cells", len(dots))
	}
}

// The y axis of a metric that is always zero begins at zero.
func TestZeroValuesBeginAtZero(t *testing.T) {
	if a := newAxis(0, 0, unit{scale: 1}, 5, true); a.Min != 0 || a.Max <= 0 {
		t.Errorf("from %v to %v", a.Min, a.Max)
	}
	if a := newAxis(3, 3, unit{scale: 1}, 5, true); a.Min >= 3 || a.Max <= 3 {
		t.Errorf("from %v to %v", a.Min, a.Max)
	}
}

// Marks are at the times of their events. Many checkpoints are drawn as short
// ticks.
func TestMarksAreAtTheirEvents(t *testing.T) {
	run := training(0, 100)
	_, page := render(t, []Run{run})
	f := figureOf(t, page, "loss")
	x, _ := scales(t, f)
	for kind, want := range map[string][]float64{"checkpoint": {480, 960, 1440, 1920}, "failure": {1200}, "restart": {1209}, "end": {2400}} {
		marks := drawn(f, "mark "+kind)
		if len(marks) != len(want) {
			t.Errorf("%d marks of kind %s, want %d", len(marks), kind, len(want))
			continue
		}
		for i, m := range marks {
			if line, _ := path(t, attr(m, "d")); math.Abs(x(line[0].x)-want[i]) > 8 || line[0].y-line[1].y < 300 {
				t.Errorf("mark %d of kind %s is %v, at %g, want %g", i, kind, line, x(line[0].x), want[i])
			}
		}
	}
	if got := text(f); !strings.Contains(got, "marks: checkpoint, restart, failure, end") {
		t.Errorf("no legend of the marks in %q", got)
	}
	for i := range 5000 {
		run.Events = append(run.Events, Event{Time: start.Add(time.Duration(i) * 400 * time.Millisecond), Kind: Checkpoint})
	}
	_, page = render(t, []Run{run})
	ticks := drawn(figureOf(t, page, "loss"), "mark checkpoint")
	if len(ticks) < 100 || len(ticks) > width {
		t.Errorf("%d ticks", len(ticks))
	}
	for _, m := range ticks {
		if line, _ := path(t, attr(m, "d")); line[0].y-line[1].y != tickHeight {
			t.Fatalf("mark %v is no tick", line)
		}
	}
}

// A loss with steps gets a second chart over steps, in which the curve goes
// back after a restart.
func TestLossOverSteps(t *testing.T) {
	all := points(10, 1, func(i int) float64 { return float64(i) })
	all[6].Step, all[7].Step = 20, 30
	run := Run{Job: "job", Created: start, Series: []Series{{"loss", "a", "worker:0", all}, {"val_loss", "a", "worker:0", all}}}
	_, page := render(t, []Run{run})
	f := figureOf(t, page, "loss over steps")
	x, _ := scales(t, f)
	got, starts := path(t, attr(drawn(f, "line c0")[0], "d"))
	if math.Abs(x(got[9].x)-90) > 1 || !slices.Equal(starts, []int{0, 6}) {
		t.Errorf("the last point is at %g, pieces begin at %d", x(got[9].x), starts)
	}
	if len(elements(page, "figure")) != 3 {
		t.Errorf("%d figures", len(elements(page, "figure")))
	}
	for i := range all {
		all[i].Step = -1
	}
	if _, page = render(t, []Run{run}); len(elements(page, "figure")) != 2 {
		t.Errorf("%d figures without steps", len(elements(page, "figure")))
	}
}

// A report with hundreds of full series takes about a second.
func TestLargeReportIsFast(t *testing.T) {
	run := Run{Job: "job", Created: start}
	for i := range 12 {
		for task := range 8 {
			run.Series = append(run.Series, Series{fmt.Sprint("metric", i), "a", fmt.Sprint("worker:", task), points(2048, 1, func(j int) float64 { return math.Sin(float64(i*task + j)) })})
		}
	}
	began := time.Now()
	written, page := render(t, []Run{run})
	t.Logf("%d bytes in %v", len(written), time.Since(began))
	if len(elements(page, "figure")) != 12 || len(written) > 2<<20 {
		t.Errorf("%d figures, %d bytes", len(elements(page, "figure")), len(written))
	}
	if took := time.Since(began); took > patience.Limit {
		t.Errorf("took %v", took)
	}
}

// Min and Max of a point are drawn as a band.
func TestMinAndMaxAreABand(t *testing.T) {
	all := points(3, 10, func(int) float64 { return 5 })
	all[1].Min, all[1].Max = metrics.Number(2), metrics.Number(9)
	_, page := render(t, []Run{{Job: "job", Created: start, Series: []Series{{"loss", "a", "worker:0", all}}}})
	f := figureOf(t, page, "loss")
	_, y := scales(t, f)
	band, _ := path(t, attr(drawn(f, "band c0")[0], "d"))
	if len(band) != 6 || math.Abs(y(band[1].y)-9) > 0.1 || math.Abs(y(band[4].y)-2) > 0.1 {
		t.Errorf("the band is %v", band)
	}
	if got := text(f); !strings.Contains(got, "worker:0529") {
		t.Errorf("%q lacks the last, least and greatest value", got)
	}
}
