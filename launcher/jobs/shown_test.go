package jobs

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/logs/style"
)

// The last line of a job shows its duration, in the colour of its outcome.
func TestLastLineHasDurationAndColour(t *testing.T) {
	begun := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		v     protocol.Verdict
		level style.Level
		want  string
	}{
		{protocol.Verdict{Reason: "done", Ended: begun.Add(2340 * time.Millisecond)}, style.Good, "job j-1 (2.3s): done"},
		{protocol.Verdict{Code: 3, Reason: "worker:1 failed", Ended: begun.Add(90*time.Minute + 400*time.Millisecond)}, style.Bad, "job j-1 (1h30m0s): worker:1 failed"},
		{protocol.Verdict{Code: 143, Reason: protocol.StoppedBy + "plx stop", Ended: begun.Add(-time.Second)}, style.Doubtful, "job j-1: stopped by plx stop"},
		{protocol.Verdict{Reason: "done"}, style.Good, "job j-1: done"},
	} {
		for _, colour := range []bool{false, true} {
			var said bytes.Buffer
			PrintVerdict(console.NewPrinter(console.Terminal{Stderr: &said, StderrColour: colour}), &Record{Job: "j-1", Created: begun}, c.v, nil)
			if want := c.level.Paint(c.want, colour) + "\n"; !strings.HasSuffix(said.String(), want) {
				t.Errorf("%q, want %q", said.String(), want)
			}
		}
	}
}

// Without jobs, plx jobs prints a message; with --json it prints an empty
// array.
func TestListWithoutJobs(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for asJSON, want := range map[bool]string{false: "", true: "[]\n"} {
		var stdout, stderr bytes.Buffer
		if err := List(t.Context(), Query{Terminal: console.Terminal{Stdout: &stdout, Stderr: &stderr}}, ListFilter{}, asJSON); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != want || !strings.HasPrefix(stderr.String(), "plx: this machine has launched no jobs") {
			t.Errorf("JSON %v: %q, %q", asJSON, stdout.String(), stderr.String())
		}
	}
}

// Below the table, each reason for an unknown state is printed once. States
// are coloured.
func TestListGroupsUnknownStates(t *testing.T) {
	var stdout, stderr bytes.Buffer
	terminal := console.Terminal{Stdout: &stdout, Stderr: &stderr, StdoutColour: true}
	one, three := 0, 3
	err := printRows(terminal, console.NewPrinter(terminal), []row{
		{Job: "a", State: "unknown", Reason: "host h1: no route"}, {Job: "b", State: "done", Code: &one, Reason: "done"},
		{Job: "c", State: "unknown", Reason: "host h1: no route"}, {Job: "d", State: "failed", Code: &three, Reason: "why"}, {Job: "e", State: "running", Generation: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := stderr.String(), "plx: job a, c: host h1: no route\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, want := range []string{style.Good.Paint("done", true), style.Bad.Paint("failed", true), style.Doubtful.Paint("unknown", true), " running, generation 2"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%q", want, stdout.String())
		}
	}
}

// On a terminal, each job takes one line, and plx jobs lists the running or
// the newest jobs (defect report T3).
func TestReportT3JobsAreOneLine(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for i, name := range []string{"one", "two", "three", "four"} {
		r := Record{Job: fmt.Sprintf("%s-20261128-02560%d-7mcq", name, i), Created: time.Date(2026, 11, 28, 2, 56, i, 0, time.UTC),
			Embedded: true, Hosts: []HostRecord{{Line: "127.0.0.2", Folder: "127.0.0.2", Binary: "none"}}}
		r.Verdict = &protocol.Verdict{Code: 1, Reason: "worker:1 on h2 exited with status 1; its last lines are above", Ended: r.Created.Add(time.Minute)}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		ListFilter
		width int
		want  string // the jobs
		said  string
	}{
		{ListFilter{}, 60, "one two three four", ""},
		{ListFilter{}, 80, "one two three four", ""},
		{ListFilter{}, 120, "one two three four", ""},
		{ListFilter{Newest: 2}, 80, "three four", ""},
		{ListFilter{Newest: 9}, 0, "one two three four", ""},
		{ListFilter{Running: true}, 80, "", "plx: no job is running\n"},
	} {
		var stdout, stderr bytes.Buffer
		if err := List(t.Context(), Query{Terminal: console.Terminal{Stdout: &stdout, Stderr: &stderr, Width: c.width}}, c.ListFilter, false); err != nil {
			t.Fatal(err)
		}
		var jobs []string
		for i, line := range strings.Split(strings.TrimSpace(stdout.String()), "\n") {
			if i > 0 {
				name, _, _ := strings.Cut(line, "-2026")
				jobs = append(jobs, name)
			}
			if c.width > 0 && len(line) > c.width {
				t.Errorf("%+v: %d cells: %q", c, len(line), line)
			}
		}
		if got := strings.Join(jobs, " "); got != c.want || stderr.String() != c.said {
			t.Errorf("%+v: %q, %q in\n%s", c, got, stderr.String(), stdout.String())
		}
	}
}

// A job's age counts from its end, here as on its hosts. The record of a job
// that has just ended stays, and its hosts are not asked.
func TestPruneAgeCountsFromTheEnd(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	now := time.Now()
	for _, r := range []Record{
		{Job: "long", Created: now.Add(-3 * time.Hour), Verdict: &protocol.Verdict{Ended: now.Add(-time.Minute)}},
		{Job: "new", Created: now.Add(-time.Minute), Verdict: &protocol.Verdict{Ended: now}},
	} {
		r.Embedded, r.Hosts = true, []HostRecord{{Line: "127.0.0.2", Folder: "127.0.0.2", Binary: "none"}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	if err := Prune(t.Context(), PruneConfig{Query: Query{Terminal: console.Terminal{Stdout: &stdout, Stderr: &stderr}}, Older: time.Hour}); err != nil {
		t.Fatal(err)
	}
	left, err := Records()
	if err != nil || len(left) != 2 || left[0].Job != "long" || left[1].Job != "new" {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// The table of --dry-run shows the names of jobs, one row for each kind of
// item, and a total.
func TestDryRunTable(t *testing.T) {
	var stdout bytes.Buffer
	p := &pruner{table: console.NewTable("HOST", "WHAT", "SIZE")}
	all := p.add("h1", []protocol.Pruned{{Path: "jobs/j-1/h1", Bytes: 1 << 10}, {Path: "jobs/j-1/h2", Bytes: 2 << 10}, {Path: "blobs/ab", Bytes: 3 << 10}, {Path: "blobs/cd", Bytes: 1 << 10}, {Path: "files", Bytes: 1}, {Path: "other/x"}})
	if err := p.table.Write(console.Terminal{Stdout: &stdout}); err != nil {
		t.Fatal(err)
	}
	want := "HOST  WHAT                          SIZE\nh1    job j-1                       3.0 KiB\nh1    programs (2)                  4.0 KiB\n" +
		"h1    files of working directories  1 B\nh1    other/x                       0 B\nh1    all                           7.0 KiB\n"
	if stdout.String() != want || all != 7<<10+1 {
		t.Errorf("%d bytes:\n%swant\n%s", all, stdout.String(), want)
	}
}

// plx stop records a job as stopped if its hosts know no verdict. It does not
// if plx launch has recorded the job's end, or if a host may still run the
// job.
func TestStopRecordsTheVerdict(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	r := Record{Job: "j-1", Created: time.Now(), Hosts: []HostRecord{{Line: "h1", Folder: "f"}}}
	s := &stopper{job: &Job{Record: r, printer: console.NewPrinter(console.Terminal{Stderr: new(bytes.Buffer)})}}
	known := func() *protocol.Verdict {
		r, found := byID("j-1")
		if !found {
			t.Fatal("no record")
		}
		return r.Verdict
	}
	if err := s.note(t.Context(), nil); err != nil { // there is no record
		t.Fatal(err)
	}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	if err := s.note(t.Context(), os.ErrDeadlineExceeded); err != nil || known() != nil {
		t.Errorf("a host was not stopped: %+v, %v", known(), err)
	}
	if err := s.note(t.Context(), nil); err != nil || known() == nil || !known().Stopped() || known().Code != submission.CodeStopped || known().Ended.IsZero() {
		t.Errorf("stopped: %+v, %v", known(), err)
	}
	noted := mustFind(t, "j-1")
	if state := newRow(t.Context(), &noted, s.job.printer, s.job.state).State; state != "stopped" {
		t.Errorf("the job is %s", state)
	}
	r = mustFind(t, "j-1")
	if err := r.Finish(protocol.Verdict{Reason: "done"}); err != nil {
		t.Fatal(err)
	}
	if err := s.note(t.Context(), nil); err != nil || known().Reason != "done" {
		t.Errorf("the launcher's verdict is lost: %+v, %v", known(), err)
	}
}

func mustFind(t *testing.T, job string) Record {
	t.Helper()
	r, found := byID(job)
	if !found {
		t.Fatal("no record")
	}
	return r
}
