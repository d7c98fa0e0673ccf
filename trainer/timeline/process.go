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
)

// Process describes the process of a timeline.
type Process struct {
	Name string // the task, such as "worker:3"
	Host string
	// ID, counted from 0, distinguishes the processes of a job if their files
	// are read together.
	ID int

	// Clock is time 0 of the file, in this host's clock. With the same Clock in
	// all files of a job, spans line up as well as the hosts' clocks agree. The
	// zero time means the recorder's earliest event.
	Clock time.Time
}

// Save writes the timeline to a file. It writes under a temporary name first,
// so that path is never half a file. It creates the folder if necessary.
func (r *Recorder) Save(path string, p Process) error {
	if err := r.save(path, p); err != nil {
		return fmt.Errorf("timeline: write %s: %w", path, err)
	}
	return nil
}

func (r *Recorder) save(path string, p Process) (err error) {
	folder, name := filepath.Split(path)
	if err := os.MkdirAll(filepath.Clean(folder), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Clean(folder), "."+name+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()           // the first error says more
			os.Remove(f.Name()) // the first error says more
		}
	}()
	if err := r.Write(f, p); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
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
		p.Clock = p.origin(events[0].start)
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

// origin is Clock with the monotonic reading of first. So distances between
// events stay right if the wall clock is set meanwhile.
func (p Process) origin(first time.Time) time.Time {
	if p.Clock.IsZero() {
		return first
	}
	return first.Add(-first.Sub(p.Clock))
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
	b = appendString(b, p.Clock.UTC().Format(time.RFC3339Nano))
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
	return append(argOf(key, value).appendJSON(append(b, `,"args":{"`+key+`":`...)), "}}"...)
}

func (p Process) appendEvent(b []byte, e event, row int) []byte {
	b = appendString(append(b, `{"name":`...), e.name)
	if e.instant() {
		b = append(b, `,"ph":"i","s":"t"`...)
	} else {
		b = append(b, `,"ph":"X","dur":`...)
		b = appendMicroseconds(b, e.end.Sub(e.start))
	}
	b = appendMicroseconds(append(b, `,"ts":`...), e.start.Sub(p.Clock))
	b = p.appendPlace(b, row)
	for i, a := range e.args {
		before := `,`
		if i == 0 {
			before = `,"args":{`
		}
		b = appendString(append(b, before...), a.key)
		b = a.appendJSON(append(b, ':'))
	}
	if len(e.args) > 0 {
		b = append(b, '}')
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
	if d < 0 {
		b, d = append(b, '-'), -d
	}
	return fmt.Appendf(b, "%d.%03d", d/1000, d%1000)
}
