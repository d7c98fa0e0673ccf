package timeline

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/plx-run/plx/internal/atomicfile"
)

// Process describes the task that a timeline file belongs to.
type Process struct {
	Name string // the task, such as "worker:3"
	Host string
	// ID is the number of the task in the job, counted from 0. It keeps tasks
	// apart if a viewer loads the files of several.
	ID int

	origin time.Time // start of the earliest event, which becomes time 0 of the file; set by Write
}

// Save writes the timeline to the file path, and creates its folder if
// necessary. It writes a temporary file and renames it, so that the file never
// contains half a timeline.
func (r *Recorder) Save(path string, p Process) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, 0o644, func(w io.Writer) error { return r.Write(w, p) })
	}
	if err != nil {
		return fmt.Errorf("timeline: write %s: %w", path, err)
	}
	return nil
}

// Write writes the timeline as JSON in the trace event format of Chrome. Spans
// become complete events ("X"), and instants become instant events ("i"). Each
// row becomes a thread, which a metadata event ("M") names. Times are in
// microseconds with three decimals.
//
// The recorder keeps its events, and other goroutines may add events during
// the call. A nil Recorder writes a timeline without events.
func (r *Recorder) Write(w io.Writer, p Process) error {
	events, dropped := r.taken()
	events = slices.Clone(events)
	slices.SortStableFunc(events, inOrder)
	if len(events) > 0 {
		p.origin = events[0].start
	}
	rows := layOut(events)
	out := bufio.NewWriter(w)
	b := p.appendHead(nil, dropped)
	for i, name := range rows.names {
		b = p.appendMetadata(append(b, ",\n"...), "thread_name", i, "name", name)
		b = p.appendMetadata(append(b, ",\n"...), "thread_sort_index", i, "sort_index", i)
	}
	for i, e := range events {
		b = p.appendEvent(append(b, ",\n"...), e, rows.of[i])
		out.Write(b) // Flush returns the error
		b = b[:0]
	}
	out.Write(append(b, "\n]}\n"...))
	return out.Flush()
}

// inOrder compares two events by their start. If two spans start together, the
// longer one comes first, because it contains the other.
func inOrder(a, b event) int {
	if c := a.start.Compare(b.start); c != 0 {
		return c
	}
	if a.instant() || b.instant() {
		return 0
	}
	return b.end.Compare(a.end)
}

func (p Process) appendHead(b []byte, dropped int) []byte {
	b = append(b, `{"displayTimeUnit":"ns","otherData":{"task":`...)
	b = appendString(b, p.Name)
	b = appendString(append(b, `,"host":`...), p.Host)
	b = append(b, `,"clock":`...)
	b = appendString(b, p.origin.UTC().Format(time.RFC3339Nano))
	b = strconv.AppendInt(append(b, `,"dropped_events":`...), int64(dropped), 10)
	b = append(b, "},\"traceEvents\":[\n"...)
	title := p.Name
	if p.Host != "" {
		title += " on " + p.Host
	}
	b = p.appendMetadata(b, "process_name", 0, "name", title)
	return p.appendMetadata(append(b, ",\n"...), "process_sort_index", 0, "sort_index", p.ID)
}

func (p Process) appendMetadata(b []byte, name string, row int, key string, value any) []byte {
	b = append(b, `{"name":"`...)
	b = append(b, name...)
	b = append(b, `","ph":"M"`...)
	b = p.appendPlace(b, row)
	return append(appendArgs(append(b, `,"args":{`...), []any{key, value}), "}}"...)
}

func (p Process) appendEvent(b []byte, e event, row int) []byte {
	b = appendString(append(b, `{"name":`...), e.name)
	if e.instant() {
		b = append(b, `,"ph":"i","s":"t"`...)
	} else {
		b = append(b, `,"ph":"X","dur":`...)
		b = appendMicroseconds(b, e.end.Sub(e.start))
	}
	b = appendMicroseconds(append(b, `,"ts":`...), e.start.Sub(p.origin))
	b = p.appendPlace(b, row)
	if len(e.args) > 0 {
		b = append(append(append(b, `,"args":{`...), e.args...), '}')
	}
	return append(b, '}')
}

// appendPlace appends the process and thread number of an event. It counts
// both from 1, because some viewers treat number 0 as the kernel's idle
// process.
func (p Process) appendPlace(b []byte, row int) []byte {
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(p.ID)+1, 10)
	return strconv.AppendInt(append(b, `,"tid":`...), int64(row)+1, 10)
}

func appendMicroseconds(b []byte, d time.Duration) []byte {
	return fmt.Appendf(b, "%d.%03d", d/1000, d%1000)
}

// rows assigns each event to a row (thread) of the trace viewer. In a row, two
// spans must be disjoint or nested. Spans of several goroutines often overlap
// in other ways, so a track may need several rows.
type rows struct {
	names []string // name of each row: the name of its track; the second and later rows of a track get a number after the name
	of    []int    // indexed by event: index of the row in which the event is shown
}

// layOut assigns each event to the first row of its track into which the event
// fits. The events must be sorted as inOrder does. Tracks appear in the order
// of their first events, and the rows of a track are adjacent.
func layOut(events []event) rows {
	tracks, order := map[string]*track{}, []*track(nil)
	place := make([]int, len(events))
	for i, e := range events {
		t := tracks[e.track]
		if t == nil {
			t = &track{name: e.track}
			tracks[e.track], order = t, append(order, t)
		}
		place[i] = t.place(e)
	}
	r, first := rows{}, map[string]int{} // first maps a track's name to the index of the track's first row
	for _, t := range order {
		first[t.name] = len(r.names)
		for i := range max(1, len(t.open)) {
			name := t.name
			if i > 0 {
				name += " (" + strconv.Itoa(i+1) + ")"
			}
			r.names = append(r.names, name)
		}
	}
	for i, e := range events {
		place[i] += first[e.track]
	}
	r.of = place
	return r
}

type track struct {
	name string
	open [][]time.Time // for each row, the end times of the spans not yet over, innermost last
}

// place returns the number of the row within the track, counted from 0, in
// which event e is shown. It adds a row if e fits into none.
func (t *track) place(e event) int {
	if e.instant() {
		return 0
	}
	for i := range t.open {
		ends := t.open[i]
		for len(ends) > 0 && !ends[len(ends)-1].After(e.start) {
			ends = ends[:len(ends)-1]
		}
		t.open[i] = ends
		if len(ends) == 0 || !e.end.After(ends[len(ends)-1]) {
			t.open[i] = append(ends, e.end)
			return i
		}
	}
	t.open = append(t.open, []time.Time{e.end})
	return len(t.open) - 1
}
