package jobs

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
)

// Without a name, plx stop and plx scale act only if exactly one job runs and
// none starts. They refuse a name that two jobs have. The hosts of these jobs
// do not reply, so that the jobs count as running.
func TestStopNeedsAnUnambiguousJob(t *testing.T) {
	for name, x := range map[string]struct {
		running  []string // names of running jobs, whose ids are NAME-1, NAME-2 and so on
		ended    []string // names of jobs that have ended
		starting bool     // a launch of the program "train" with the name "early" has no job yet
		job      string   // that the user names
		want     string   // job in the resulting query; empty if the command refuses
	}{
		"nothing":                      {nil, []string{"a"}, false, "", ""},
		"one":                          {[]string{"a"}, []string{"b", "b"}, false, "", "a-1"},
		"two":                          {[]string{"a", "b"}, nil, false, "", ""},
		"one that starts":              {nil, nil, true, "", ""},
		"one, and one starts":          {[]string{"a"}, nil, true, "", ""},
		"a name":                       {[]string{"a", "b"}, nil, true, "a", "a"},
		"a name, one has ended":        {[]string{"a"}, []string{"a"}, false, "a", "a"},
		"two of a name":                {[]string{"a", "a"}, nil, false, "a", ""},
		"an id of two of a name":       {[]string{"a", "a"}, nil, false, "a-1", "a-1"},
		"the name of a launch":         {[]string{"a"}, nil, true, "early", "early"},
		"the program of a launch":      {[]string{"a"}, nil, true, "train", "train"},
		"a name that a launch has too": {[]string{"early"}, nil, true, "early", ""},
		"a beginning and a program":    {[]string{"training"}, nil, true, "train", ""},
		"a beginning of two":           {[]string{"ab", "ac"}, nil, false, "a", ""},
		"an ended job":                 {nil, []string{"a"}, false, "a", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			ids, numbers := []string{}, map[string]int{}
			save := func(name string, v *protocol.Verdict) {
				numbers[name]++
				id := name + "-" + string(rune('0'+numbers[name]))
				r := Record{Job: id, Name: name, Created: time.Now(), Way: Way{Via: "false {host}"}, Hosts: []HostRecord{{Line: "h1", Tasks: []string{"worker:0"}}}, Verdict: v}
				if err := r.Save(); err != nil {
					t.Fatal(err)
				}
				if v == nil {
					ids = append(ids, id)
				}
			}
			for _, name := range x.ended {
				save(name, &protocol.Verdict{Reason: "done"})
			}
			for _, name := range x.running {
				save(name, nil)
			}
			if x.starting {
				done, err := Announce("early", "train")
				if err != nil {
					t.Fatal(err)
				}
				defer done()
				ids = append(ids, "early")
			}
			var stdout, stderr bytes.Buffer
			got, err := Query{Job: x.job, Terminal: console.Terminal{Stdout: &stdout, Stderr: &stderr}}.resolve(t.Context(), "plx stop")
			if x.want != "" && (err != nil || got.Job != x.want || stderr.Len()+stdout.Len() > 0) {
				t.Errorf("%q, %v, %q; want %q", got.Job, err, stderr.String(), x.want)
			}
			if x.want != "" {
				return
			}
			if exit.Code(err) != exit.CodeUsage || exit.Hint(err) == "" || stdout.Len() > 0 {
				t.Errorf("%q, %v, want a refusal", got.Job, err)
			}
			for _, id := range ids {
				if !strings.Contains(stderr.String(), id) {
					t.Errorf("%q does not list %s", stderr.String(), id)
				}
			}
		})
	}
}

// Stop and Scale change no job if several jobs match the query.
func TestStopAndScaleRefuseAmbiguousJobs(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, job := range []string{"a", "b"} {
		r := Record{Job: job, Created: time.Now(), Way: Way{Via: "false {host}"}, Hosts: []HostRecord{{Line: "h1", Tasks: []string{"worker:0"}}}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	q := Query{Terminal: console.Terminal{Stdout: io.Discard, Stderr: io.Discard}, Reach: hosts.Reach{Via: "false {host}", Hosts: []hostfile.Host{{Name: "h2"}}}}
	for name, err := range map[string]error{
		"stop": Stop(t.Context(), StopConfig{Query: q}), "scale": Scale(t.Context(), ScaleConfig{Query: q, SaveTime: time.Minute}),
	} {
		if exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), "plx "+name+" without the name of a job") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

// A requeued Slurm submission and all jobs that it has launched count as one
// candidate. The submission's id means this candidate.
func TestRequeuedSubmissionIsOneCandidate(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	answer(t, "JobState=PENDING Restarts=1 ExitCode=0:0")
	s := submission.Submission{Job: "first-1", Name: "first", Created: time.Now()}
	if err := errors.Join(s.Make(nil), s.Record("7", "out")); err != nil {
		t.Fatal(err)
	}
	r := Record{Job: "first-1", Name: "first", Created: time.Now(), Way: Way{Via: "false {host}", Slurm: slurm.Run{ID: "7"}}, Hosts: []HostRecord{{Line: "h1"}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"first", "first-1", ""} {
		var stderr bytes.Buffer
		_, err := Query{Job: job, Terminal: console.Terminal{Stderr: &stderr}}.resolve(t.Context(), "plx stop")
		if named := job != ""; named == (err != nil) {
			t.Errorf("%q: %v", job, err)
		}
		if job == "" && !strings.Contains(err.Error(), "0 running, 1 starting") {
			t.Errorf("%v, %s", err, stderr.String())
		}
	}
}
