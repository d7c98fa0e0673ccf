// Package timeline records what a task did and when. It writes a file for a
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
// A recorder takes spans and instants from any goroutine. It has a limit of
// events, and counts those that it drops. It does not measure or sample by
// itself. It does not compare the clocks of several hosts: time 0 of a file is its
// earliest event.
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

// Recorder keeps the spans and instants of one task. A nil Recorder is valid
// and records nothing. Any goroutine may call its methods.
type Recorder struct {
	on    atomic.Bool // events are recorded
	limit int         // most events that are kept

	mu      sync.Mutex
	since   time.Time // when recording was switched on last
	events  []event
	dropped int // number of events beyond limit
}

// event is a span, or an instant if end is the zero time.
type event struct {
	track, name string
	start, end  time.Time // end is the zero time for an instant
	args        []byte    // members of a JSON object; nil means none
}

func (e event) instant() bool { return e.end.IsZero() }

// New returns a recorder that is off and holds at most limit events. It drops
// and counts further events. An event takes about 100 bytes, and about 100 more
// if it has arguments.
func New(limit int) *Recorder { return &Recorder{limit: limit} }

// Record switches recording on or off. The recorder keeps an event if it is on
// when the event arrives; a span arrives when it has ended. One that began before
// recording was switched on, such as a transfer of the step before, is not kept.
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

// Enabled reports whether the recorder keeps events now. It costs one atomic
// load. Call it before work that only the recorder needs.
func (r *Recorder) Enabled() bool { return r != nil && r.on.Load() }

// Span records that name lasted from start to end on the named track. args are
// pairs of key and value. A key is a string. A value is a string, bool, int,
// uint or float of any size, or a time.Duration (written in seconds); of any
// other value only the type is kept. While recording is off, Span allocates
// nothing. A span that ends before it starts is recorded with its start as its
// end.
//
// Spans of one track may overlap. Those that neither contain nor miss each
// other are shown in further rows.
func (r *Recorder) Span(track, name string, start, end time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	if end.Before(start) || end.IsZero() {
		end = start
	}
	r.add(event{track, name, start, end, appendArgs(nil, args)})
}

// Instant records that name happened at a time. args are those of Span.
func (r *Recorder) Instant(track, name string, at time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	r.add(event{track: track, name: name, start: at, args: appendArgs(nil, args)})
}

// Dropped is the number of dropped events.
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

// taken returns the events so far, in the order of their arrival. The caller
// must not change them.
func (r *Recorder) taken() (events []event, dropped int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)], r.dropped
}

// appendArgs appends pairs of key and value as members of a JSON object. The values do
// not escape, so a call that records nothing allocates nothing.
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

// appendValue writes a value as JSON, of a type that it does not know the type's name.
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

// appendFloat writes a number. Those that JSON cannot write become strings.
func appendFloat(b []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return appendString(b, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64)
}

// appendString writes s as a JSON string. Bytes that are not UTF-8 become the
// replacement character.
func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always has a JSON form
	return append(b, quoted...)
}

// Steps is a list of steps, counted from 0.
type Steps []span

// span is the half-open interval [start, end).
type span struct{ start, end uint64 }

// maxSpans bounds a list.
const maxSpans = 1000

// ParseSteps reads a list such as "5,10:12": step 5, and the steps from 10, inclusive, to 12,
// exclusive.
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

// First returns the first step; s must have one.
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
