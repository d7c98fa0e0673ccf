// Package timeline records events of a task and writes them to a file for a
// trace viewer: chrome://tracing, or Perfetto at ui.perfetto.dev.
//
//	r := timeline.New(1 << 20)
//	for step := uint64(0); step < 100; step++ {
//		r.Record(profiled.Contains(step)) // profiled, _ := timeline.ParseSteps("5,10:12")
//		start := time.Now()
//		compute()
//		r.Span("replica 0", "forward", start, time.Now(), "step", step)
//	}
//	err := r.Save("worker-0.trace.json", timeline.Process{Name: "worker:0", Host: "gpu01"})
//
// Any goroutine may add events to a Recorder. A Recorder keeps a limited
// number of events, and counts those that it drops. It takes no measurements
// of its own. Files of several hosts are not aligned with each other: time 0
// of a file is the file's earliest event.
package timeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder keeps the spans and instants of one task in memory. A nil Recorder
// is valid and records nothing. Any goroutine may call its methods.
type Recorder struct {
	on    atomic.Bool // true while events are recorded
	limit int         // largest number of events that the recorder keeps; it drops further ones

	mu      sync.Mutex
	since   time.Time // when Record last switched recording on; spans that began earlier are not kept
	events  []event
	dropped int // number of events dropped because the limit was reached
}

// event is a span with a start and an end, or an instant. An instant has the
// zero time as its end.
type event struct {
	track, name string
	start, end  time.Time // end is the zero time for an instant (an event without duration)
	args        []byte    // arguments as the members of a JSON object, without braces; nil means no arguments
}

func (e event) instant() bool { return e.end.IsZero() }

// New returns a recorder that is switched off and keeps at most limit events.
// It drops and counts further events. An event takes about 100 bytes, or 200
// with arguments.
func New(limit int) *Recorder { return &Recorder{limit: limit} }

// Record switches recording on or off. While recording is off, Span and
// Instant keep nothing. Span also drops a span that began before recording was
// last switched on, such as a transfer that the step before had started.
func (r *Recorder) Record(on bool) {
	if r == nil {
		return
	}
	if on && !r.on.Load() {
		r.mu.Lock()
		r.since = time.Now()
		r.mu.Unlock()
	}
	r.on.Store(on)
}

// Enabled reports whether recording is on. It costs one atomic load, so
// callers can check it before they compute the arguments of an event.
func (r *Recorder) Enabled() bool { return r != nil && r.on.Load() }

// Span records an event with a start and an end on the named track (row of the
// viewer). A span that ends before it starts is recorded with length 0.
//
// args are pairs of a key and a value. A key is a string. A value is a string,
// a bool, a number or a time.Duration, which Span writes in seconds. For a
// value of any other type, Span writes the name of the type.
//
// While recording is off, Span allocates nothing. Spans of a track may
// overlap: if two spans overlap and neither contains the other, the viewer
// shows them in separate rows.
func (r *Recorder) Span(track, name string, start, end time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	if end.Before(start) || end.IsZero() {
		end = start
	}
	r.add(event{track, name, start, end, appendArgs(nil, args)})
}

// Instant records an event without duration on the named track (row of the
// viewer). args are pairs of a key and a value, as for Span.
func (r *Recorder) Instant(track, name string, at time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	r.add(event{track: track, name: name, start: at, args: appendArgs(nil, args)})
}

// Dropped returns the number of events that the recorder dropped because its
// limit was reached.
func (r *Recorder) Dropped() int {
	_, dropped := r.taken()
	return dropped
}

func (r *Recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.instant() && e.start.Before(r.since) {
		return
	}
	if len(r.events) >= r.limit {
		r.dropped++
		return
	}
	r.events = append(r.events, e)
}

// taken returns the events recorded so far, in the order in which they were
// added. The slice is shared with the recorder, so the caller must not change
// it.
func (r *Recorder) taken() (events []event, dropped int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)], r.dropped
}

// appendArgs appends pairs of a key and a value as members of a JSON object.
// It keeps no reference to pairs, so the compiler can put the callers'
// arguments on the stack.
func appendArgs(b []byte, pairs []any) []byte {
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := pairs[i].(string)
		b = appendValue(append(appendString(b, key), ':'), pairs[i+1])
	}
	return b
}

// appendValue appends a value as JSON. For a value that is no string, bool,
// number or time.Duration, it appends the name of the type.
func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return appendString(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case time.Duration:
		return appendFloat(b, v.Seconds())
	}
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return strconv.AppendInt(b, v.Int(), 10)
	case v.CanUint():
		return strconv.AppendUint(b, v.Uint(), 10)
	case v.CanFloat():
		return appendFloat(b, v.Float())
	}
	return appendString(b, reflect.TypeOf(value).String())
}

// appendFloat appends x as a JSON number. It appends NaN and infinities as
// strings, because JSON has no such numbers.
func appendFloat(b []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return appendString(b, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64)
}

// appendString appends s as a JSON string. Invalid UTF-8 in s becomes the
// Unicode replacement character.
func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // Marshal cannot fail for a string
	return append(b, quoted...)
}

// Steps is a set of training steps, written as a list of half-open intervals.
// Steps are counted from 0.
type Steps []span

// span is the half-open interval of steps [start, end).
type span struct{ start, end uint64 }

// maxSpans is the largest number of intervals that ParseSteps accepts in a
// list.
const maxSpans = 1000

// ParseSteps parses a list such as "5,10:12", which stands for the steps 5, 10
// and 11: the end of a range is exclusive.
func ParseSteps(s string) (Steps, error) {
	var all Steps
	for part := range strings.SplitSeq(s, ",") {
		one, err := parseSpan(part)
		if err == nil && len(all) == maxSpans {
			err = fmt.Errorf("more than %d parts", maxSpans)
		}
		if err != nil {
			return nil, fmt.Errorf("steps %q: %w", s, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func parseSpan(s string) (span, error) {
	first, end, isRange := strings.Cut(s, ":")
	if !isRange {
		n, err := parseStep("step", first)
		if err == nil && n == math.MaxUint64 {
			err = fmt.Errorf("step %q is too large", first)
		}
		return span{n, n + 1}, err
	}
	from, err := parseStep("start", first)
	to, wrong := parseStep("end", end)
	if err = cmp.Or(err, wrong); err == nil && from >= to {
		err = errors.New("no step: the end is exclusive and must be above the start")
	}
	return span{from, to}, err
}

// Contains reports whether step is in s.
func (s Steps) Contains(step uint64) bool {
	return slices.ContainsFunc(s, func(x span) bool { return x.start <= step && step < x.end })
}

// First returns the lowest step in s. It panics if s is empty.
func (s Steps) First() uint64 {
	return slices.MinFunc(s, func(a, b span) int { return cmp.Compare(a.start, b.start) }).start
}

func parseStep(which, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case s == "":
		return 0, fmt.Errorf("%s is missing", which)
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s %q is too large", which, s)
	case err != nil:
		return 0, fmt.Errorf("%s %q is not a whole number", which, s)
	}
	return n, nil
}
