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

// Process describes the process of a timeline.
type Process struct {
	Name string // the task, such as "worker:3"
	Host string
	// ID, counted from 0, distinguishes the processes of a job if their files
	// are read together.
	ID int

	origin time.Time // time 0 of the file: the earliest event
}

// Save writes the timeline to a file. It writes under a temporary name first,
// so that path is never half a file. It creates the folder if necessary.
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

// Write writes the timeline in the JSON object form of the trace event format.
// Spans are complete events ("X"), instants are instant events ("i") of their
// track. Tracks are threads, named by metadata events ("M"). Times are
// microseconds with three digits after the point.
//
// The events stay recorded, and recording may go on meanwhile. A nil recorder
// writes a timeline without events.
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

// inOrder sorts by start. Of spans that start together, the longest comes first
// and contains the others.
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

// appendPlace counts processes and threads from 1. Some viewers take number 0
// for the kernel's idle process.
func (p Process) appendPlace(b []byte, row int) []byte {
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(p.ID)+1, 10)
	return strconv.AppendInt(append(b, `,"tid":`...), int64(row)+1, 10)
}

func appendMicroseconds(b []byte, d time.Duration) []byte {
	return fmt.Appendf(b, "%d.%03d", d/1000, d%1000)
}

// rows says in which row each event is drawn. A viewer wants the spans of a row
// to nest or to be disjoint. Spans from several goroutines may do neither, so a
// track takes as many rows as necessary.
type rows struct {
	names []string // by row: name of the track, with a number from the track's second row on
	of    []int    // by event: index of the event's row
}

// layOut gives each event the first possible row of its track. events are
// sorted. Tracks come in the order of their first event; a track's rows are
// next to each other.
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
	r, first := rows{}, map[string]int{} // by track: its first row
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
	open [][]time.Time // by row: ends of the open spans, the innermost last
}

// place returns a row of the track, counted from 0.
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
