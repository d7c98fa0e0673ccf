// Package live says in one line what a job does now: its state, the tasks that run, and what a
// training reports, with the newest values of its tasks.
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

// State is what plx itself knows of the job.
type State struct {
	Doing    string    // such as "running"
	Since    time.Time // when the job began; zero: when its first task was seen to run
	Restarts int
	Warnings int       // lines about the job that plx has printed meanwhile
	Last     time.Time // when a task wrote a line last; zero: none has
}

// Line is the line of one job. Any goroutine may use it.
type Line struct {
	patterns []metrics.Pattern

	mu      sync.Mutex
	state   State
	begun   time.Time          // when the first task ran; zero: none has
	hosts   map[int]running    // by index of the host
	streams map[string]*stream // by host, task and stream
	tasks   map[string]*newest

	lead     string          // the first task that has reported a loss; "": none has
	losses   metrics.History // of lead
	lossName string          // the name of these losses
}

// running is how many tasks of a host run, of how many.
type running struct{ now, of int }

// newest is what a task has reported last.
type newest struct {
	at      time.Time // when it came
	sample  metrics.Sample
	windows window
}

// Task is what a task has reported.
type Task struct {
	Step, Rate float64 // Rate is in steps a second; 0: not known
	Line       string  // the last line that it wrote, as it wrote it: at most maxShown bytes of its end
	written    time.Time
}

// Task returns what a task has reported.
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

// Losses returns the losses that the line showed, the oldest first: of a long training those of
// every second, fourth or eighth report.
func (l *Line) Losses() (values []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.losses.Points(l.lossName) {
		values = append(values, float64(p.Last))
	}
	return values
}

// New returns a Line without a state. Patterns are the user's, for values in the output.
func New(patterns []metrics.Pattern) *Line {
	return &Line{patterns: patterns, hosts: map[int]running{}, streams: map[string]*stream{}, tasks: map[string]*newest{}}
}

// Update changes the state.
func (l *Line) Update(change func(*State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.state)
}

// Tasks tells how many tasks of a host run, of how many that are not done.
func (l *Line) Tasks(host, now, of int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[host] = running{now, of}
	if now > 0 && l.begun.IsZero() {
		l.begun = time.Now()
	}
}

// Bounds of what is kept: names come from hosts and programs.
const (
	maxTasks  = 10_000
	maxValues = 64  // of a task
	maxShown  = 512 // bytes of a line
)

// Report takes what a task has reported. Values that the sample lacks stay as they were.
func (l *Line) Report(task string, s metrics.Sample, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report(task, s, at)
}

// report is Report; written is when the task wrote that, by the clock of its host. It needs l.mu.
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

// leader returns the first task with a loss. It needs l.mu.
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

// names returns the tasks in order. It needs l.mu.
func (l *Line) names() []string {
	names := slices.Collect(maps.Keys(l.tasks))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }) // worker:2 before worker:10
	return names
}

// quiet is how long no task writes a line before the line says so.
const quiet = 10 * time.Second

// Parts returns the parts of the line, the most important one first.
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
		all.now, all.of = all.now+max(0, host.now), all.of+host.of
	}
	level := style.Good
	if all.now < all.of {
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
	if all.now < all.of {
		add(style.Doubtful, "%d of %s", all.now, plural.Count(all.of, "task"))
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
	if all.now > 0 && all.now >= all.of {
		add(style.Plain, "%s", plural.Count(all.of, "task"))
	}
	return parts
}

// training returns what the tasks report: the position of the one that is furthest, and the
// values of the first task that has them.
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
		parts = append(parts, "epoch "+of(epoch, epochs, hasEpochs))
	}
	step, hasStep := furthest.sample.Get(metrics.Step)
	steps, hasSteps := furthest.sample.Get(metrics.Steps)
	if hasStep {
		parts = append(parts, "step "+of(step, steps, hasSteps && steps >= step))
	}
	if lead := l.leader(); lead != "" {
		v, _ := Loss(l.tasks[lead].sample)
		parts = append(parts, v.Name+" "+Number(v.Number))
	}
	for _, p := range l.patterns { // the user has named them
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

// Loss returns the value that a training is judged by: that of the name "loss", or of the first
// one that has the word in it, of data that is trained on before other data.
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

// heldOut matches names of values on data that is not trained on.
var heldOut = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("val|test|dev") })

// of is a position, with the end if that is known.
func of(at, end metrics.Number, known bool) string {
	if !known || end == 0 {
		return Number(at)
	}
	return Number(at) + "/" + Number(end)
}

// Number formats a value in few characters: whole numbers are whole, others have four digits.
func Number(n metrics.Number) string {
	f := float64(n)
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 4, 64)
}

// Short formats a time in its two largest units: "45s", "2m10s", "3h05m", "2d4h".
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

// window has the newest steps of a task with their times.
type window struct {
	at   []time.Time
	step []float64
}

const (
	span    = 30 * time.Second // over which a rate is measured
	points  = 64               // that a window keeps
	tooLate = 3                // a window whose last step is older than so many spans has no rate
)

// rate returns the task's steps per second. False: they are not known.
func (n *newest) rate(now time.Time) (float64, bool) {
	if now.Sub(n.at) > tooLate*span {
		return 0, false
	}
	return n.windows.rate()
}

// add adds a step. A step that is lower than the last one begins again.
func (w *window) add(at time.Time, step float64) {
	n := len(w.step)
	switch {
	case n > 0 && step < w.step[n-1]:
		w.at, w.step = w.at[:0], w.step[:0]
	case n > 1 && at.Sub(w.at[n-2]) < span/points: // too near: the newest moves
		w.at[n-1], w.step[n-1] = at, step
		return
	}
	for len(w.at) > 2 && (at.Sub(w.at[1]) > span || len(w.at) == points) {
		w.at, w.step = w.at[1:], w.step[1:]
	}
	w.at, w.step = append(w.at, at), append(w.step, step)
}

// rate returns the steps per second over the window. False: they are not known.
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
