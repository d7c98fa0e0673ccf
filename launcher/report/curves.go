package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
)

// maxCurves is the maximum number of curves in a chart of one run. If there
// are more series, the chart shows the first as a curve and all others as one
// band.
const maxCurves = 8

// dot is a point of a curve. If gap is true, no line connects the dot with its
// predecessor.
type dot struct {
	x, y   float64
	lo, hi float64 // smallest and greatest value that the dot summarizes
	gap    bool
}

// curve is a line in a chart, or a band without a line.
type curve struct {
	label     string
	colour    int
	dots      []dot
	band      bool // true if the chart shows only the area between lo and hi, without a line
	notFinite int  // number of NaN or infinite values, which are not drawn
}

// extremes returns the smallest and the greatest value of the curve. ok is
// false if the curve has no dots.
func (c curve) extremes() (least, greatest float64, ok bool) {
	least, greatest = math.Inf(1), math.Inf(-1)
	for _, d := range c.dots {
		least, greatest = min(least, d.lo), max(greatest, d.hi)
	}
	return least, greatest, len(c.dots) > 0
}

// source is a series together with the index of its run.
type source struct {
	run int
	Series
	gpu int // index of the GPU; -1 if the series does not concern a GPU
}

// metric is a name with all series of that name in all runs.
type metric struct {
	name    string
	host    bool // true if the metric concerns the load of a host
	sources []source
}

// title returns the chart's title for the metric.
func (m metric) title() string {
	if !m.host {
		return clean(m.name)
	}
	switch m.name {
	case CPU:
		return "CPU"
	case GPU:
		return "GPU"
	case GPUMemory:
		return "GPU memory"
	case Received:
		return "network received"
	case Sent:
		return "network sent"
	}
	return m.name
}

// order returns the position of the metric's chart: training metrics come
// before those of hosts.
func (m metric) order() int {
	if m.host {
		return 100 + slices.Index([]string{CPU, GPU, GPUMemory, Received, Sent, Memory}, m.name)
	}
	name := strings.ToLower(m.name)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
	}
	switch {
	case name == "loss":
		return 0
	case name == "train_loss", name == "train/loss":
		return 1
	case has("loss"):
		return 2
	case has("acc", "top1", "top5", "f1", "auc", "iou"):
		return 3
	case has("per_s", "throughput", "fps", "mfu"):
		return 4
	case name == "lr", has("learning_rate", "lr_", "_lr", "/lr"):
		return 5
	}
	return 6
}

// metricsOf returns the metrics of all runs, in the order in which the report
// shows them.
func metricsOf(runs []Run) (all []*metric) {
	for i, run := range runs {
		for _, s := range run.Series {
			name, gpu, host := s.Name, -1, false
			if s.Task == "" {
				name, gpu, host = hostMetric(s.Name)
			}
			if host && name == CPUs || len(s.Points) == 0 {
				continue
			}
			at := slices.IndexFunc(all, func(m *metric) bool { return m.name == name && m.host == host })
			if at < 0 {
				at, all = len(all), append(all, &metric{name: name, host: host})
			}
			all[at].sources = append(all[at].sources, source{i, s, gpu})
		}
	}
	for _, m := range all {
		slices.SortStableFunc(m.sources, func(a, b source) int {
			return cmp.Or(cmp.Compare(a.run, b.run), compareTasks(a.Task, b.Task), strings.Compare(a.Host, b.Host), cmp.Compare(a.gpu, b.gpu))
		})
	}
	slices.SortStableFunc(all, func(a, b *metric) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), strings.Compare(a.name, b.name))
	})
	return all
}

// hostMetric splits the name of a host's series into the metric and the index
// of a GPU. The index is -1 if the name has none. host is false if the name is
// not that of a host's metric.
func hostMetric(name string) (base string, gpu int, host bool) {
	for _, base := range []string{GPU, GPUMemory} {
		if text, ok := strings.CutPrefix(name, base+"_"); ok {
			if gpu, err := strconv.Atoi(text); err == nil && gpu >= 0 {
				return base, gpu, true
			}
		}
	}
	return name, -1, slices.Contains([]string{CPU, CPUs, GPU, GPUMemory, Received, Sent, Memory}, name)
}

// compareTasks orders task names: workers first, then the other roles by name,
// and by index within a role.
func compareTasks(a, b string) int {
	roleA, textA, _ := strings.Cut(a, ":")
	roleB, textB, _ := strings.Cut(b, ":")
	rank := func(role string) int {
		if role == "worker" {
			return 0
		}
		return 1
	}
	indexA, _ := strconv.Atoi(textA)
	indexB, _ := strconv.Atoi(textB)
	return cmp.Or(cmp.Compare(rank(roleA), rank(roleB)), strings.Compare(roleA, roleB), cmp.Compare(indexA, indexB), strings.Compare(a, b))
}

// label returns the name of a series in the chart's legend.
func (s source) label() string {
	switch {
	case s.Task != "":
		return clean(s.Task)
	case s.gpu >= 0:
		return fmt.Sprintf("%s GPU %d", clean(s.Host), s.gpu)
	}
	return clean(s.Host)
}

// seconds returns a function that computes the x coordinate of a point: the
// seconds from start to the point's time. That function returns false if the
// point has no time.
func seconds(start time.Time) func(metrics.Point) (float64, bool) {
	return func(p metrics.Point) (float64, bool) { return p.Time.Sub(start).Seconds(), !p.Time.IsZero() }
}

// steps returns the training step of a point as the point's x coordinate. It
// returns false if the point has no step.
func steps(p metrics.Point) (float64, bool) { return float64(p.Step), p.Step >= 0 }

// maxDrawn limits the absolute value of drawn values. So the difference of two
// values cannot be infinite.
const maxDrawn = 1e300

// draw returns the curve of a series. x(p) is the x coordinate of the point p.
// draw multiplies all values by factor.
func draw(points []metrics.Point, x func(metrics.Point) (float64, bool), factor float64) (c curve) {
	gap := false
	for _, p := range points {
		at, ok := x(p)
		if !ok {
			continue
		}
		last, lo, hi := float64(p.Last), float64(p.Min), float64(p.Max)
		if !finite(last) || !finite(lo) || !finite(hi) {
			c.notFinite++
		}
		if !finite(last) {
			gap = true
			continue
		}
		if !finite(lo) {
			lo = last
		}
		if !finite(hi) {
			hi = last
		}
		bound := func(v float64) float64 { return max(-maxDrawn, min(maxDrawn, v*factor)) }
		d := dot{x: at, y: bound(last), lo: bound(min(lo, last)), hi: bound(max(hi, last)), gap: gap}
		if n := len(c.dots); n > 0 && at < c.dots[n-1].x { // the training repeats earlier steps after a restart, so x decreases
			d.gap = true
		}
		c.dots, gap = append(c.dots, d), false
	}
	return c
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// maxCells is the maximum number of points in a mean curve or a band.
const maxCells = 200

// grid combines curves into one with evenly spaced x values. At each x, it
// looks at the curves that have begun and not ended there. y is the mean of
// their values; lo and hi are the smallest and the greatest.
func grid(curves []curve) (dots []dot) {
	first, last, cells := math.Inf(1), math.Inf(-1), 0
	for _, c := range curves {
		for _, d := range c.dots {
			first, last = min(first, d.x), max(last, d.x)
		}
		cells = max(cells, min(maxCells, len(c.dots)))
	}
	if cells == 0 {
		return nil
	}
	dots = make([]dot, cells)
	counts := make([]float64, cells)
	cell := func(x float64) int {
		if last <= first {
			return 0
		}
		return max(0, min(cells-1, int(math.Round((x-first)/(last-first)*float64(cells-1)))))
	}
	for i := range dots {
		dots[i] = dot{x: first, lo: math.Inf(1), hi: math.Inf(-1)}
		if cells > 1 {
			dots[i].x += (last - first) * float64(i) / float64(cells-1)
		}
	}
	for _, c := range curves {
		own := make([]dot, cells)
		counted := make([]float64, cells)
		from, to := cells, -1
		for _, d := range c.dots {
			i := cell(d.x)
			if from, to = min(from, i), max(to, i); counted[i] == 0 {
				own[i] = dot{lo: d.lo, hi: d.hi}
			}
			counted[i]++
			own[i].y += (d.y - own[i].y) / counted[i]
			own[i].lo, own[i].hi = min(own[i].lo, d.lo), max(own[i].hi, d.hi)
		}
		for i := from; i <= to; i++ {
			if counted[i] == 0 { // there is no value at this x: repeat the previous one
				own[i] = dot{y: own[i-1].y, lo: own[i-1].y, hi: own[i-1].y}
			}
			counts[i]++
			dots[i].y += (own[i].y - dots[i].y) / counts[i]
			dots[i].lo, dots[i].hi = min(dots[i].lo, own[i].lo), max(dots[i].hi, own[i].hi)
		}
	}
	kept := dots[:0]
	gap := false
	for i, d := range dots {
		if counts[i] == 0 {
			gap = true
			continue
		}
		d.gap, gap = gap, false
		kept = append(kept, d)
	}
	return kept
}

// maxDots is the maximum number of dots in a drawn line.
const maxDots = 400

// thin reduces the dots to at most maxDots. It divides them into 100 ranges
// and keeps four dots of each: the first, the lowest, the highest and the
// last. lo and hi of a kept dot include those of the removed dots before it.
func thin(dots []dot) []dot {
	if len(dots) <= maxDots {
		return dots
	}
	const ranges = maxDots / 4
	kept := make([]dot, 0, maxDots)
	for r := range ranges {
		part := dots[r*len(dots)/ranges : (r+1)*len(dots)/ranges]
		least, greatest := 0, 0
		for i, d := range part {
			if d.y < part[least].y {
				least = i
			}
			if d.y > part[greatest].y {
				greatest = i
			}
		}
		from := 0
		for i, d := range part {
			if i != 0 && i != least && i != greatest && i != len(part)-1 {
				continue
			}
			for _, left := range part[from:i] {
				d.lo, d.hi, d.gap = min(d.lo, left.lo), max(d.hi, left.hi), d.gap || left.gap
			}
			kept, from = append(kept, d), i+1
		}
	}
	return kept
}
