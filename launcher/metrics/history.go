package metrics

import (
	"maps"
	"slices"
	"time"
)

// Bounds of a History: maxPoints is for the points of one metric, maxNames for
// the number of metrics.
const (
	maxPoints = 2048
	maxNames  = 64
)

// Point is one reported value of a metric, or a summary of several successive
// values.
type Point struct {
	Step     int64     // training step of the last summarized value; -1 if the task had reported no step
	Time     time.Time // time of the last summarized value, in whole milliseconds
	Last     Number
	Min, Max Number // smallest and greatest summarized value; NaN if one of the values is NaN
}

// History stores the metrics that a task has reported, in bounded memory. When
// a metric has 2048 points, History merges neighbouring points in pairs. A
// merged point has the minimum and maximum of both. A History stores at most
// 64 metrics and drops the values of further ones. Points stay in the order in
// which they were added, even if their steps decrease. Steps decrease after a
// restart from a checkpoint, or if a progress bar restarts in each epoch.
//
// The zero History is empty. Only one goroutine at a time may use a History.
type History struct {
	newest map[string]Number
	series map[string]*series
}

// Add adds the values that a task reported at the given time.
func (h *History) Add(at time.Time, s Sample) {
	if h.newest == nil {
		h.newest = map[string]Number{}
	}
	if h.series == nil {
		h.series = map[string]*series{}
	}
	for _, v := range s {
		if isProgress(v.Name) {
			h.newest[v.Name] = v.Number
		}
	}
	step := int64(-1)
	if n, ok := h.newest[Step]; ok && n >= 0 && n <= maxCount {
		step = int64(n)
	}
	for _, v := range s {
		if one := h.of(v.Name); one != nil {
			h.newest[v.Name] = v.Number
			one.add(Point{Step: step, Time: at.Truncate(time.Millisecond), Last: v.Number, Min: v.Number, Max: v.Number})
		}
	}
}

// Restart removes the newest values but keeps all points. The caller calls it
// when the task starts again.
func (h *History) Restart() { h.newest = nil }

// of returns the series of a metric. If there is none, it creates one,
// provided that the History has room. It returns nil for a metric without a
// series.
func (h *History) of(name string) *series {
	if isProgress(name) || !validName(name) {
		return nil
	}
	one := h.series[name]
	if one == nil && len(h.series) < maxNames {
		one = &series{stride: 1}
		h.series[name] = one
	}
	return one
}

// isProgress reports whether the metric is about the task's progress: its
// step, its epoch or their totals. A History stores only the newest value of
// such a metric, and no points.
func isProgress(name string) bool {
	return name == Step || name == Steps || name == Epoch || name == Epochs
}

// Newest returns the newest value of each metric, by the metric's name.
func (h *History) Newest() map[string]Number { return maps.Clone(h.newest) }

// Names returns the sorted names of the metrics that have points.
func (h *History) Names() []string { return slices.Sorted(maps.Keys(h.series)) }

// Points returns the points of a metric in the order in which they were added.
// The caller must not change them.
func (h *History) Points(name string) []Point {
	if one := h.series[name]; one != nil {
		return one.points
	}
	return nil
}

// series has the points of one metric. Each point except the last summarizes
// exactly stride values.
type series struct {
	stride int64
	filled int64 // number of values that the last point summarizes
	points []Point
}

func (s *series) add(p Point) {
	if n := len(s.points); n > 0 && s.filled < s.stride {
		s.points[n-1] = merge(s.points[n-1], p)
		s.filled++
		return
	}
	if len(s.points) == maxPoints {
		s.halve()
	}
	s.points = append(s.points, p)
	s.filled = 1
}

// halve merges neighbouring points in pairs and doubles the stride. Afterwards
// the last point summarizes stride values, as all other points do.
func (s *series) halve() {
	for i := range len(s.points) / 2 {
		s.points[i] = merge(s.points[2*i], s.points[2*i+1])
	}
	s.points = s.points[:len(s.points)/2]
	s.stride *= 2
}

// merge returns one point that summarizes a and its successor b. If one of the
// values is NaN, so are Min and Max, because the built-in min and max return
// NaN.
func merge(a, b Point) Point {
	b.Min, b.Max = min(a.Min, b.Min), max(a.Max, b.Max)
	return b
}
