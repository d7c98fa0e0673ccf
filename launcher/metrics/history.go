package metrics

import (
	"maps"
	"slices"
	"time"
)

// Bounds of a History: the points of a name, and the names that have points.
const (
	maxPoints = 2048
	maxNames  = 64
)

// Point stands for one value, or for several that follow each other.
type Point struct {
	Step     int64     // at the last of them; -1: the task had reported none
	Time     time.Time // of the last of them, to the millisecond
	Last     Number
	Min, Max Number // NaN if one of them is
}

// History keeps the values that a task has reported, in bounded memory: once a name has
// 2048 points, each two become one, which keeps their least and their greatest value. It
// knows 64 names; values of further ones are dropped. Points are in the order in which
// they came. After a restart from a checkpoint steps go back, and a progress bar counts
// anew in each epoch: that removes no point.
//
// The zero History is empty. One goroutine at a time may use it.
type History struct {
	newest map[string]Number
	series map[string]*series
}

// Add adds what a task has reported.
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

// Restart forgets the newest values, but no point: a later generation of the task begins.
func (h *History) Restart() { h.newest = nil }

// of returns the series of a name, nil if it has none.
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

// isProgress reports whether a name says how far a task is. It has a newest value only.
func isProgress(name string) bool {
	return name == Step || name == Steps || name == Epoch || name == Epochs
}

// Newest returns the newest value of each name.
func (h *History) Newest() map[string]Number { return maps.Clone(h.newest) }

// Names returns the names that have points, in order.
func (h *History) Names() []string { return slices.Sorted(maps.Keys(h.series)) }

// Points returns the points of a name in order; the caller must not change them.
func (h *History) Points(name string) []Point {
	if one := h.series[name]; one != nil {
		return one.points
	}
	return nil
}

// series are the points of a name. All but the last stand for stride values.
type series struct {
	stride int64
	filled int64 // number of values that the last point stands for
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

// halve makes one point of each two. The last one is full.
func (s *series) halve() {
	for i := range len(s.points) / 2 {
		s.points[i] = merge(s.points[2*i], s.points[2*i+1])
	}
	s.points = s.points[:len(s.points)/2]
	s.stride *= 2
}

// merge returns a point for a and b, which follows it. The built-in min and max return NaN
// if one of both is.
func merge(a, b Point) Point {
	b.Min, b.Max = min(a.Min, b.Min), max(a.Max, b.Max)
	return b
}
