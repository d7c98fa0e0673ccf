package timeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// Recorder keeps the spans and instants of one task. A nil Recorder is valid
// and records nothing. Any goroutine may call its methods.
type Recorder struct {
	on    atomic.Bool
	limit int

	mu      sync.Mutex
	events  []event
	dropped int
}

// event is a span, or an instant if end is the zero time.
type event struct {
	track, name string
	start, end  time.Time
	args        []arg
}

func (e event) instant() bool { return e.end.IsZero() }

// New returns a recorder that is off and holds at most limit events. It drops
// and counts further events. An event takes about 100 bytes, and about 100 more
// if it has arguments.
func New(limit int) *Recorder { return &Recorder{limit: limit} }

// Record switches recording on or off. The recorder keeps an event if it is on
// when the event arrives; a span arrives when it has ended.
func (r *Recorder) Record(on bool) {
	if r != nil {
		r.on.Store(on)
	}
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
	r.add(event{track, name, start, end, argsOf(args)})
}

// Instant records that name happened at a time. args are those of Span.
func (r *Recorder) Instant(track, name string, at time.Time, args ...any) {
	if !r.Enabled() {
		return
	}
	r.add(event{track: track, name: name, start: at, args: argsOf(args)})
}

// Dropped is the number of dropped events.
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
