package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// viewed is a timeline file as a trace viewer decodes it.
type viewed struct {
	DisplayTimeUnit string
	OtherData       struct {
		Task, Host, Clock string
		Dropped           int `json:"dropped_events"`
	}
	TraceEvents []viewedEvent
}

type viewedEvent struct {
	Name, Ph, S string
	Ts, Dur     json.Number
	Pid, Tid    *int
	Args        map[string]any
}

func view(t *testing.T, r *Recorder, p Process) viewed {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out, p); err != nil {
		t.Fatal(err)
	}
	return parse(t, out.Bytes())
}

func parse(t *testing.T, text []byte) viewed {
	t.Helper()
	var v viewed
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, e := range v.TraceEvents {
		if e.Name == "" || e.Pid == nil || e.Tid == nil || *e.Pid < 1 || *e.Tid < 1 {
			t.Fatalf("an event lacks a name, a process or a thread: %+v", e)
		}
		if timed := e.Ph == "X" || e.Ph == "i"; timed != (e.Ts != "") || (e.Ph == "X") != (e.Dur != "") {
			t.Fatalf("an event has the wrong times: %+v", e)
		}
	}
	return v
}

func (v viewed) named(name string) (found []viewedEvent) {
	for _, e := range v.TraceEvents {
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// tracks returns the name of each row, by the number of its thread.
func (v viewed) tracks() map[int]string {
	names := map[int]string{}
	for _, e := range v.named("thread_name") {
		names[*e.Tid] = e.Args["name"].(string)
	}
	return names
}

func recording(limit int) *Recorder {
	r := New(limit)
	r.Record(true)
	r.since = time.Time{} // the times in the tests are before the call of Record
	return r
}

// The recorder must drop a span that began before recording was switched on,
// or while it was off.
func TestSpansBeforeRecordingAreDropped(t *testing.T) {
	r := New(10)
	before := time.Now()
	r.Record(true)
	r.Span("lane", "early", before, time.Now())
	r.Record(true) // recording stays on for the next step
	begun := time.Now()
	r.Record(true)
	r.Span("lane", "kept", begun, time.Now())
	r.Record(false)
	paused := time.Now()
	r.Record(true)
	r.Span("lane", "of the pause", paused, time.Now())
	if events, dropped := r.taken(); len(events) != 1 || events[0].name != "kept" || dropped != 0 {
		t.Errorf("%+v, %d dropped", events, dropped)
	}
}

var start = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func at(nanoseconds int64) time.Time { return start.Add(time.Duration(nanoseconds)) }

func TestEventsAreWrittenAsGiven(t *testing.T) {
	r := recording(10)
	r.Span("lane 0", "backward", at(2500), at(4001), "step", 7, "loss", 0.5, "late", true, "took", time.Second/4)
	r.Span("lane 0", "step", at(1000), at(5000))
	r.Instant("lane 1", "bucket leaves", at(3000), "bytes", uint64(math.MaxUint64), "to", "ps:0", "norm", math.NaN())
	v := view(t, r, Process{Name: "worker:3", ID: 3, Host: "gpu01"})

	if got := v.named("process_name")[0].Args["name"]; got != "worker:3 on gpu01" {
		t.Errorf("process %q", got)
	}
	if v.OtherData.Task != "worker:3" || v.OtherData.Host != "gpu01" || v.OtherData.Clock != "2024-05-01T12:00:00.000001Z" {
		t.Errorf("process: %+v", v.OtherData)
	}
	inner, outer, moment := v.named("backward")[0], v.named("step")[0], v.named("bucket leaves")[0]
	for _, c := range []struct {
		e           viewedEvent
		ph, ts, dur string
		track, args string
	}{
		{inner, "X", "1.500", "1.501", "lane 0", "map[late:true loss:0.5 step:7 took:0.25]"},
		{outer, "X", "0.000", "4.000", "lane 0", "map[]"},
		{moment, "i", "2.000", "", "lane 1", "map[bytes:1.8446744073709552e+19 norm:NaN to:ps:0]"},
	} {
		e := c.e
		if e.Ph != c.ph || e.Ts.String() != c.ts || e.Dur.String() != c.dur || *e.Pid != 4 {
			t.Errorf("%s: got %+v, want %+v", e.Name, e, c)
		}
		if got := v.tracks()[*e.Tid]; got != c.track {
			t.Errorf("%s is on %q, want %q", e.Name, got, c.track)
		}
		if got := fmt.Sprint(e.Args); got != c.args {
			t.Errorf("%s has %s, want %s", e.Name, got, c.args)
		}
	}
	if moment.S != "t" {
		t.Errorf("an instant of scope %q", moment.S)
	}
}

// In each row, two spans must be nested or disjoint, because trace viewers
// draw only such rows.
func TestEveryRowNests(t *testing.T) {
	r := recording(1000)
	given := 0
	for i := range int64(300) {
		from := i * 7919 % 1000
		r.Span("sends", fmt.Sprintf("send %d", i), at(from), at(from+i*104729%97))
		given++
	}
	r.Span("sends", "whole", at(0), at(2000))
	r.Span("lane 0", "alone", at(5), at(6))
	v := view(t, r, Process{})
	byRow := map[int][]viewedEvent{}
	for _, e := range v.TraceEvents {
		if e.Ph == "X" {
			byRow[*e.Tid] = append(byRow[*e.Tid], e)
			given--
		}
	}
	if given != -2 || len(byRow) < 3 {
		t.Fatalf("%d spans are missing; %d rows", given+2, len(byRow))
	}
	for row, events := range byRow {
		for i, a := range events {
			for _, b := range events[:i] {
				if a0, a1, b0, b1 := ends(a, b); a0 < b1 && b0 < a1 && !(a0 >= b0 && a1 <= b1) && !(b0 >= a0 && b1 <= a1) {
					t.Fatalf("row %d: %+v cuts %+v", row, a, b)
				}
			}
		}
		if !strings.HasPrefix(v.tracks()[row], "sends") && v.tracks()[row] != "lane 0" {
			t.Errorf("row %d is called %q", row, v.tracks()[row])
		}
	}
}

func ends(a, b viewedEvent) (a0, a1, b0, b1 int64) {
	nano := func(n json.Number) int64 {
		f, _ := n.Float64()
		return int64(math.Round(1000 * f))
	}
	a0, b0 = nano(a.Ts), nano(b.Ts)
	return a0, a0 + nano(a.Dur), b0, b0 + nano(b.Dur)
}

func TestNothingIsLostBelowTheLimit(t *testing.T) {
	const writers, each = 8, 500
	for _, c := range []struct{ limit, dropped int }{{writers * each, 0}, {writers*each - 3, 3}, {0, writers * each}} {
		r := recording(c.limit)
		var all sync.WaitGroup
		for g := range writers {
			all.Go(func() {
				for i := range each {
					if i%2 == 0 {
						r.Span(fmt.Sprint("lane ", g), fmt.Sprint(g, "/", i), time.Now(), time.Now(), "i", i)
					} else {
						r.Instant(fmt.Sprint("lane ", g), fmt.Sprint(g, "/", i), time.Now())
					}
					if i == each/2 {
						view(t, r, Process{})
					}
				}
			})
		}
		all.Wait()
		v := view(t, r, Process{})
		seen := map[string]bool{}
		for _, e := range v.TraceEvents {
			if e.Ph != "M" {
				seen[e.Name] = true
			}
		}
		if len(seen) != min(c.limit, writers*each) || r.Dropped() != c.dropped || v.OtherData.Dropped != c.dropped {
			t.Errorf("limit %d: %d events, %d and %d dropped", c.limit, len(seen), r.Dropped(), v.OtherData.Dropped)
		}
	}
}

func TestRecorderAllocatesNothingWhileOff(t *testing.T) {
	var none *Recorder
	for name, r := range map[string]*Recorder{"nil": none, "off": New(10)} {
		n := 1000
		allocated := testing.AllocsPerRun(100, func() {
			n++
			r.Span("lane", "forward", start, start, "step", n, "rate", float64(n), "took", time.Duration(n))
			r.Instant("lane", "ready", start, "bytes", n)
		})
		if allocated != 0 || r.Enabled() || r.Dropped() != 0 {
			t.Errorf("%s: %v allocations, enabled %v, %d dropped", name, allocated, r.Enabled(), r.Dropped())
		}
	}
	none.Record(true)
	if v := view(t, none, Process{Name: "worker:0"}); len(v.TraceEvents) != 2 {
		t.Errorf("a nil recorder wrote %+v", v.TraceEvents)
	}
}

// The file must be valid JSON whatever names, times and arguments callers
// pass.
func TestStrangeEventsGiveValidFile(t *testing.T) {
	r := recording(100)
	r.Span("lane", "turned", at(9), at(3))
	r.Span("lane", "endless", at(1), time.Time{})
	r.Span("lane", "odd", at(1), at(2), "key")
	r.Span("lane", "unnamed", at(1), at(2), 5, "five")
	r.Span("la\"ne\n", "types", at(1), at(2), "error", errors.New("x"), "nil", nil, "f", float32(2), "inf", math.Inf(-1),
		"i8", int8(-1), "u16", uint16(1), "i32", int32(3), "u", uint(4), "quote\"", "\xff\x00")
	v := view(t, r, Process{Name: "a\"b"})
	for name, want := range map[string]string{
		"turned": "map[]", "endless": "map[]", "odd": "map[]",
		"unnamed": "map[:five]",
		"types":   "map[error:*errors.errorString f:2 i32:3 i8:-1 inf:-Inf nil:<nil> quote\":\ufffd\x00 u:4 u16:1]",
	} {
		e := v.named(name)[0]
		if got := fmt.Sprint(e.Args); got != want || e.Ph != "X" || strings.HasPrefix(e.Dur.String(), "-") {
			t.Errorf("%s: %s lasting %s, want %s", name, got, e.Dur, want)
		}
	}
}

func TestSave(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "by save")
	path := filepath.Join(folder, "worker-0.json")
	r := recording(10)
	for i := range 2 { // the second call overwrites the file of the first
		r.Instant("lane", "x", at(int64(i)))
		if err := r.Save(path, Process{Name: "worker:0"}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, text).named("x"); len(got) != i+1 {
			t.Errorf("%d events, want %d", len(got), i+1)
		}
	}
	if files, _ := os.ReadDir(folder); len(files) != 1 {
		t.Errorf("files left: %v", files)
	}
	blocked := filepath.Join(path, "below a file", "x.json")
	if err := r.Save(blocked, Process{}); err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("below a file: %v", err)
	}
	if err := r.Save(folder, Process{}); err == nil {
		t.Error("a folder was replaced")
	} else if files, _ := os.ReadDir(filepath.Dir(folder)); len(files) != 1 {
		t.Errorf("files left: %v", files)
	}
}

type broken struct{ after int }

func (b *broken) Write(p []byte) (int, error) {
	if b.after -= len(p); b.after < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestWriteReportsErrors(t *testing.T) {
	r := recording(1000)
	for i := range int64(1000) {
		r.Span("lane", "x", at(i), at(i+1))
	}
	for _, after := range []int{0, 10000} {
		if err := r.Write(&broken{after}, Process{}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("a writer that fails after %d bytes: %v", after, err)
		}
	}
}
