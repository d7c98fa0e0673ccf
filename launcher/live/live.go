// Package live maintains the status line of a job in a terminal. The line
// shows the state, the number of running tasks, and the newest metrics that
// the training tasks report.
//
//	line := live.New(nil)
//	defer printer.Status(line.Parts)()
//	line.Update(func(s *live.State) { s.Doing = "running" })
//	line.Tasks(0, 4, 4)
//	line.Report("worker:0", sample, time.Now())
package live

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// State is the part of the status line that plx itself knows, without the
// tasks' metrics.
type State struct {
	Doing    string    // text for the job's phase, such as "running"; "" hides the line
	Since    time.Time // when the job began; if zero, the status line uses the time when the first task was seen running
	Restarts int
	Warnings int       // number of messages about the job that plx has printed
	Last     time.Time // when a task last wrote output; zero if never
}

// Line is the status line of one job. Its methods may be called from any
// goroutine.
type Line struct {
	patterns []metrics.Pattern

	mu      sync.Mutex
	state   State
	begun   time.Time          // when a task was first seen running; zero if none was yet
	hosts   map[int]running    // running tasks of each host, by the host's index
	streams map[string]*stream // by host, task and kind (stdout or stderr): the task's output
	tasks   map[string]*newest

	lead     string          // name of the first task that has reported a loss; "" if none has
	losses   metrics.History // losses that the task named lead has reported
	lossName string          // metric name of the values in losses, such as "loss" or "train_loss"
}

// running counts the tasks of a host: now is how many run, total is how many
// are expected to run.
type running struct{ now, total int }

// newest holds the latest metrics of a task.
type newest struct {
	at      time.Time // when the latest report arrived
	sample  metrics.Sample
	windows window
}

// Task is the progress that a task has reported.
type Task struct {
	Step, Rate float64 // step number, and steps per second; a Rate of 0 means unknown
	Line       string  // end of the task's last output line: at most maxShown bytes, unescaped
	written    time.Time
}

// Task returns the progress that the named task has reported.
func (l *Line) Task(name string) (t Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.tasks[name]; n != nil {
		step, _ := n.sample.Get(metrics.Step)
		t.Step = float64(step)
		t.Rate, _ = n.rate(time.Now())
	}
	for _, s := range l.streams {
		if s.task == name && s.time.After(t.written) {
			t.Line, t.written = s.last(), s.time
		}
	}
	return t
}

// Losses returns the losses of the task whose loss the line shows, the oldest
// first. In a long training each returned value is only the last of 2, 4, 8 or
// more reported losses.
func (l *Line) Losses() (values []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.losses.Points(l.lossName) {
		values = append(values, float64(p.Last))
	}
	return values
}

// New returns a Line without a state. The patterns find the user's own metrics
// in the tasks' output.
func New(patterns []metrics.Pattern) *Line {
	return &Line{patterns: patterns, hosts: map[int]running{}, streams: map[string]*stream{}, tasks: map[string]*newest{}}
}

// Update calls change with the state of the line, under the line's lock.
func (l *Line) Update(change func(*State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.state)
}

// Tasks sets how many tasks run on the host with the given index. now is the
// number of running tasks, and total the number that is expected to run.
func (l *Line) Tasks(host, now, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[host] = running{now, total}
	if now > 0 && l.begun.IsZero() {
		l.begun = time.Now()
	}
}

// Limits on memory. They are needed because hosts and programs choose the
// names of tasks and metrics.
const (
	maxTasks  = 10_000
	maxValues = 64  // metrics per task
	maxShown  = 512 // bytes kept of an output line
)

// Report records metrics that a task has reported. A metric that the sample
// does not contain keeps its value.
func (l *Line) Report(task string, s metrics.Sample, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report(task, s, at)
}

// report does the work of Report; the caller must hold l.mu. The task wrote
// the metrics at the time written, by the clock of the task's host.
func (l *Line) report(task string, s metrics.Sample, written time.Time) {
	n := l.tasks[task]
	if n == nil {
		if len(s) == 0 || len(l.tasks) == maxTasks {
			return
		}
		n = &newest{}
		l.tasks[task] = n
	}
	n.at = time.Now()
	for _, v := range s {
		if i := slices.IndexFunc(n.sample, func(old metrics.Value) bool { return old.Name == v.Name }); i >= 0 {
			n.sample[i] = v
		} else if len(n.sample) < maxValues {
			n.sample = append(n.sample, v)
		}
	}
	if step, ok := s.Get(metrics.Step); ok {
		n.windows.add(written, float64(step))
	}
	if v, ok := Loss(s); ok && task == l.leader() {
		if l.lossName == "" {
			l.lossName = v.Name
		}
		l.losses.Add(written, metrics.Sample{v})
	}
}

// leader returns the name of the first task that has reported a loss. The
// caller must hold l.mu.
func (l *Line) leader() string {
	if l.lead == "" {
		for _, name := range l.names() {
			if _, ok := Loss(l.tasks[name].sample); ok {
				l.lead = name
				break
			}
		}
	}
	return l.lead
}

// names returns the names of the tasks with metrics, sorted. The caller must
// hold l.mu.
func (l *Line) names() []string {
	names := slices.Collect(maps.Keys(l.tasks))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }) // shorter names first, so that worker:2 comes before worker:10
	return names
}

// quiet is how long no task must have written output before the status line
// says so.
const quiet = 10 * time.Second

// Parts returns the parts of the status line, the most important part first.
func (l *Line) Parts(colour bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, now := l.state, time.Now()
	if s.Doing == "" {
		return nil
	}
	for _, s := range l.streams {
		s.watcher.Flush(s.time)
	}
	var all running
	for _, host := range l.hosts {
		all.now, all.total = all.now+max(0, host.now), all.total+host.total
	}
	level := style.Good
	if all.now < all.total {
		level = style.Doubtful
	}
	parts := []string{level.Paint(logs.Escape(s.Doing), colour)}
	if s.Since.IsZero() {
		s.Since = l.begun
	}
	if !s.Since.IsZero() {
		parts[0] += " " + Short(max(0, now.Sub(s.Since)))
	}
	add := func(level style.Level, format string, args ...any) {
		parts = append(parts, level.Paint(logs.Escape(fmt.Sprintf(format, args...)), colour))
	}
	if all.now < all.total {
		add(style.Doubtful, "%d of %s", all.now, plural.Count(all.total, "task"))
	}
	for _, text := range l.training(now) {
		add(style.Plain, "%s", text)
	}
	if !s.Last.IsZero() && now.Sub(s.Last) >= quiet {
		add(style.Doubtful, "no line for %s", Short(now.Sub(s.Last)))
	}
	if s.Restarts > 0 {
		add(style.Doubtful, "%s", plural.Count(s.Restarts, "restart"))
	}
	if s.Warnings > 0 {
		add(style.Doubtful, "%s", plural.Count(s.Warnings, "warning"))
	}
	if all.now > 0 && all.now >= all.total {
		add(style.Plain, "%s", plural.Count(all.total, "task"))
	}
	return parts
}

// training returns the parts of the status line that show metrics. The step is
// the highest one that a task has reported. Each other metric is taken from
// the first task, in the order of names, that has reported the metric.
func (l *Line) training(now time.Time) (parts []string) {
	names := l.names()
	if len(names) == 0 {
		return nil
	}
	get := func(name string) (metrics.Number, bool) {
		for _, task := range names {
			if v, ok := l.tasks[task].sample.Get(name); ok {
				return v, true
			}
		}
		return 0, false
	}
	furthest := l.tasks[names[0]]
	for _, name := range names {
		step, _ := l.tasks[name].sample.Get(metrics.Step)
		if most, ok := furthest.sample.Get(metrics.Step); !ok || step > most {
			furthest = l.tasks[name]
		}
	}
	epoch, hasEpoch := get(metrics.Epoch)
	epochs, hasEpochs := get(metrics.Epochs)
	if hasEpoch {
		parts = append(parts, "epoch "+position(epoch, epochs, hasEpochs))
	}
	step, hasStep := furthest.sample.Get(metrics.Step)
	steps, hasSteps := furthest.sample.Get(metrics.Steps)
	if hasStep {
		parts = append(parts, "step "+position(step, steps, hasSteps && steps >= step))
	}
	if lead := l.leader(); lead != "" {
		v, _ := Loss(l.tasks[lead].sample)
		parts = append(parts, v.Name+" "+Number(v.Number))
	}
	for _, p := range l.patterns { // metrics of the user's own patterns
		shown := p.Name() == l.lossName || slices.Contains([]string{metrics.Step, metrics.Steps, metrics.Epoch, metrics.Epochs, metrics.Rate}, p.Name())
		if v, ok := get(p.Name()); ok && !shown {
			parts = append(parts, p.Name()+" "+Number(v))
		}
	}
	rate, hasRate := furthest.rate(now)
	if !hasRate {
		var reported metrics.Number
		if reported, hasRate = furthest.sample.Get(metrics.Rate); hasRate {
			rate = float64(reported)
		}
	}
	if hasRate && rate > 0 {
		parts = append(parts, Number(metrics.Number(rate))+" steps/s")
		last := !hasEpochs || epoch >= epochs
		if hasStep && hasSteps && steps > step && last {
			parts = append(parts, Short(time.Duration(float64(steps-step)/rate*float64(time.Second)))+" left")
		}
	}
	return parts
}

// Loss returns the metric that shows how well the training works. This is the
// metric named "loss" or, if there is none, the first whose name contains
// "loss". Losses on training data take precedence over losses on validation
// data.
func Loss(s metrics.Sample) (metrics.Value, bool) {
	for _, is := range []func(string) bool{
		func(name string) bool { return name == "loss" },
		func(name string) bool { return strings.Contains(name, "loss") && !heldOut().MatchString(name) },
		func(name string) bool { return strings.Contains(name, "loss") },
	} {
		if i := slices.IndexFunc(s, func(v metrics.Value) bool { return is(v.Name) }); i >= 0 {
			return s[i], true
		}
	}
	return metrics.Value{}, false
}

// heldOut matches names of metrics that are measured on validation or test
// data.
var heldOut = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("val|test|dev") })

// position formats a position such as a step. If the total is known, the
// format is "position/total".
func position(at, end metrics.Number, known bool) string {
	if !known || end == 0 {
		return Number(at)
	}
	return Number(at) + "/" + Number(end)
}

// Number formats a metric in few characters: whole numbers in full, other
// numbers with four significant digits.
func Number(n metrics.Number) string {
	f := float64(n)
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 4, 64)
}

// Short formats a duration in its two largest units: "45s", "2m10s", "3h05m",
// "2d4h".
func Short(d time.Duration) string {
	switch s := int64(d.Seconds()); {
	case d > 1000*24*time.Hour || d < 0:
		return "?"
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%dh", s/(24*3600), s/3600%24)
	}
}

// window holds the newest step numbers of a task and the times when the task
// reported them.
type window struct {
	at   []time.Time
	step []float64
}

const (
	span    = 30 * time.Second // length of the time window in which the step rate is measured
	points  = 64               // maximum number of entries in a window
	tooLate = 3                // number of spans without a report after which the rate is unknown
)

// rate returns the task's steps per second. It returns false if the rate is
// unknown.
func (n *newest) rate(now time.Time) (float64, bool) {
	if now.Sub(n.at) > tooLate*span {
		return 0, false
	}
	return n.windows.rate()
}

// add appends a step to the window. If the step is lower than the last one,
// the training has restarted, and the window is cleared first.
func (w *window) add(at time.Time, step float64) {
	n := len(w.step)
	switch {
	case n > 0 && step < w.step[n-1]:
		w.at, w.step = w.at[:0], w.step[:0]
	case n > 1 && at.Sub(w.at[n-2]) < span/points: // the last two entries are too close in time: replace the last one
		w.at[n-1], w.step[n-1] = at, step
		return
	}
	for len(w.at) > 2 && (at.Sub(w.at[1]) > span || len(w.at) == points) {
		w.at, w.step = w.at[1:], w.step[1:]
	}
	w.at, w.step = append(w.at, at), append(w.step, step)
}

// rate returns the steps per second over the window. It returns false if the
// rate is unknown.
func (w *window) rate() (float64, bool) {
	n := len(w.at)
	if n < 2 || w.step[n-1] == w.step[0] {
		return 0, false
	}
	took := w.at[n-1].Sub(w.at[0]).Seconds()
	if took < 1 {
		return 0, false
	}
	return (w.step[n-1] - w.step[0]) / took, true
}
