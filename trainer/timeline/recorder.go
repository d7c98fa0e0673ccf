package timeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// Recorder keeps the spans and instants of one task. A nil Recorder is valid
// and records nothing. Its methods may be called by any goroutine.
type Recorder struct {
	on    atomic.Bool
	limit int

	mu      sync.Mutex
	events  []event
	dropped int
}

// event is a span, or an instant where end is the zero time.
type event struct {
	track, name string
	start, end  time.Time
	args        []arg
}

func (e event) instant() bool { return e.end.IsZero() }

// New returns a recorder that is off and holds at most limit events; where
// limit is reached further ones are dropped and counted. An event takes about
// 100 bytes, and as much again where it has arguments.
func New(limit int) *Recorder { return &Recorder{limit: limit} }

// Record switches recording on or off. An event is kept if recording is on
// when it is given to the recorder: a span when it has ended.
func (r *Recorder) Record(on bool) {
	if r != nil {
		r.on.Store(on)
	}
}

// Enabled reports whether events are kept now. It costs one atomic load: ask
// before work that is done only for the recorder.
func (r *Recorder) Enabled() bool { return r != nil && r.on.Load() }

// Span records that name went on from start to end on the named track. args
// are pairs of a key and a value: the key a string, the value a string, bool,
// int, uint or float of any size, or a time.Duration (written in seconds); of
// any other value only its type is kept. A call while recording is off
// allocates nothing. A span that ends before it starts is recorded as if it
// ended at its start.
//
// Spans of one track may overlap; those that neither contain nor miss one
// another are shown in rows below it.
func (r *Recorder) Span(track, name string, start, end time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	if end.Before(start) || end.IsZero() {
		end = start
	}
	r.add(event{track, name, start, end, argsOf(args)})
}

// Instant records that name happened at a moment. args are those of Span.
func (r *Recorder) Instant(track, name string, at time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	r.add(event{track: track, name: name, start: at, args: argsOf(args)})
}

// Dropped is the number of events that found no room.
func (r *Recorder) Dropped() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

func (r *Recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= r.limit {
		r.dropped++
		return
	}
	r.events = append(r.events, e)
}

// taken returns the events up to now, in the order they came. The caller must
// not change them.
func (r *Recorder) taken() (events []event, dropped int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)], r.dropped
}
