package jobs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
)

// answer puts a script named scontrol that prints line into PATH.
func answer(t *testing.T, line string) {
	t.Helper()
	dir := t.TempDir()
	if err := executable.Write(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\necho '"+line+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// A submission is selected like a job: by its id, its name, the beginning of
// its id, or as the newest.
func TestSubmissionByIDNameOrPrefix(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	begin := time.Now().UTC().Add(-time.Hour)
	queue := func(job, name, id string, minute int, over *slurm.State) {
		t.Helper()
		s := submission.Submission{Job: job, Name: name, Created: begin.Add(time.Duration(minute) * time.Minute), Over: over}
		if err := s.Make(nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Record(id, "out"); err != nil {
			t.Fatal(err)
		}
	}
	answer(t, "JobState=PENDING ExitCode=0:0")
	launch := func(job, name string, run slurm.Run, minute int) {
		t.Helper()
		r := Record{Job: job, Name: name, Created: begin.Add(time.Duration(minute) * time.Minute), Way: Way{Slurm: run}, Hosts: []HostRecord{{Line: "h1"}}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	queue("first-1", "first", "1", 1, &slurm.State{Name: "FAILED"})
	queue("first-2", "first", "2", 2, nil)
	launch("first-2", "first", slurm.Run{ID: "2"}, 3)
	launch("first-2-r1", "first", slurm.Run{ID: "2", Restarts: 1}, 4)
	queue("second-1", "second", "3", 5, nil)
	launch("second-9", "second", slurm.Run{}, 6) // over SSH, and later
	queue("third-1", "", "4", 7, nil)
	for text, want := range map[string]string{
		"": "third-1", "first": "first-2", "first-1": "first-1", "first-2": "first-2", "third": "third-1", "second": "", "second-1": "second-1",
		"fir": "", "nothing": "", "second-9": "",
	} {
		got := ""
		s, err := submissionOf(t.Context(), Query{Job: text})
		if s != nil {
			got = s.Job
		}
		if got != want || err != nil {
			t.Errorf("%q means %q, %v, want %q", text, got, err, want)
		}
	}
	answer(t, "JobState=COMPLETED ExitCode=0:0")
	if s, err := submissionOf(t.Context(), Query{}); s != nil || err != nil {
		t.Errorf("with none in the queue: %v, %v", s, err)
	}
	if s, err := submissionOf(t.Context(), Query{Job: "third-1", OnHosts: true}); s != nil || err != nil {
		t.Errorf("with --hosts: %v, %v", s, err)
	}
	s := submitted{&submission.Submission{Job: "first-2", Slurm: "2"}}
	if r, found := s.last(3); !found || r.Job != "first-2-r1" {
		t.Errorf("the newest run is %q, %v", r.Job, found)
	}
	if _, found := (submitted{&submission.Submission{Job: "first-2", Slurm: "5"}}).last(3); found {
		t.Error("a job of another submission is taken for its own")
	}
}

// The row of a submission without a job shows what Slurm knows about the
// submission.
func TestRowOfASubmission(t *testing.T) {
	for line, want := range map[string]row{
		"JobState=PENDING Reason=Resources NumNodes=2 ExitCode=0:0": {State: "pending", Hosts: 2, Reason: "job 12 of Slurm is pending (Resources)"},
		"JobState=RUNNING NumNodes=2 ExitCode=0:0":                  {State: "starting", Hosts: 2, Reason: "job 12 of Slurm has its nodes, plx starts there"},
		"JobState=CANCELLED ExitCode=0:15":                          {State: "stopped", Reason: "job 12 of Slurm: CANCELLED, by signal 15"},
		"JobState=FAILED ExitCode=2:0":                              {State: "failed", Reason: "job 12 of Slurm: FAILED, with status 2"},
		"no job":                                                    {State: "unknown", Reason: `job first-1: job 12 of Slurm: scontrol show job: cannot parse this job: "no job\n"`},
	} {
		t.Setenv("HOME", t.TempDir())
		answer(t, line)
		s := submission.Submission{Job: "first-1"}
		if err := s.Make(nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Record("12", "out"); err != nil {
			t.Fatal(err)
		}
		got, shown := submitted{&s}.row(t.Context())
		if !shown || got.Job != "first-1" || got.State != want.State || got.Reason != want.Reason || got.Hosts != want.Hosts {
			t.Errorf("%s: %+v", line, got)
		}
	}
}
