package submission_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
)

// answers puts a fake scontrol on PATH that prints line, and a fake scancel
// after which scontrol prints CANCELLED.
func answers(t *testing.T, line string) {
	t.Helper()
	dir := t.TempDir()
	said := filepath.Join(dir, "line")
	for name, text := range map[string]string{"scontrol": "cat " + said, "scancel": "echo 'JobState=CANCELLED ExitCode=0:15' >" + said} {
		if err := executable.Write(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(said, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// submitted returns a submission that is recorded in a temporary home
// directory.
func submitted(t *testing.T, environ ...string) *submission.Submission {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	s := &submission.Submission{Job: "first-1", Name: "first", Program: "train", Created: time.Now().UTC()}
	if err := s.Make(environ); err != nil {
		t.Fatal(err)
	}
	dir, err := s.Folder()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Record("12", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	return s
}

// A submission file of 1 GiB is rejected because of its size.
func TestRecordsAreBounded(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	root, err := submission.Root()
	path := filepath.Join(root, "j", "job.json")
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)); err != nil {
		t.Fatal(err)
	}
	if err := submission.Read("j", "job.json", new(any)); err == nil || !strings.Contains(err.Error(), path+" has more than 67108864 bytes") {
		t.Error(err)
	}
}

// The tasks' environment variables are readable only by the user, and are
// deleted when the Slurm job is over.
func TestEnvironmentFileIsPrivateAndRemoved(t *testing.T) {
	s := submitted(t, "A=1", "TOKEN=x y")
	dir, _ := s.Folder()
	file := filepath.Join(dir, submission.EnvironmentFile)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if text, err := os.ReadFile(file); string(text) != "A=1\nTOKEN=x y\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	answers(t, "JobState=RUNNING Restarts=1 ExitCode=0:0")
	if state, err := s.Ask(t.Context()); state.Restarts != 1 || err != nil || s.Over != nil {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if err := s.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("variables are left: %v", err)
	}
	all, err := submission.All()
	if len(all) != 1 || err != nil || all[0].Over == nil || all[0].Over.Name != "CANCELLED" {
		t.Fatalf("%+v, %v", all, err)
	}
	answers(t, "Slurm has forgotten it")
	if state, err := all[0].Ask(t.Context()); state.Name != "CANCELLED" || err != nil {
		t.Errorf("%+v, %v", state, err)
	}
	if err := s.Make([]string{"A=1\n2"}); err == nil || exit.Code(err) != exit.CodeUsage || !strings.HasPrefix(err.Error(), "--env A: ") {
		t.Errorf("several lines: %v", err)
	}
}

// Submissions are found in a home directory whose path contains glob
// characters.
func TestHomeWithGlobCharacters(t *testing.T) {
	t.Setenv("HOME", filepath.Join(t.TempDir(), "[of] a user*")) // no pattern
	s := submission.Submission{Job: "j"}
	if err := errors.Join(s.Make(nil), s.Record("7", "out")); err != nil {
		t.Fatal(err)
	}
	if all, err := submission.All(); err != nil || len(all) != 1 || all[0].Slurm != "7" {
		t.Errorf("%+v, %v", all, err)
	}
}

// The error for a Slurm job that has launched nothing is one line.
func TestErrorOfUnstartedSubmission(t *testing.T) {
	s := submitted(t)
	if err := os.WriteFile(s.Output, []byte("noise\nplx: host h2: no GPU\nplx: hint: look there\nlater\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		state slurm.State
		want  string
		code  int
	}{
		{slurm.State{Name: "CANCELLED", Signal: 15}, "job first-1: job 12 of Slurm was cancelled before its tasks began", 143},
		{slurm.State{Name: "FAILED", Code: 2}, "job first-1: job 12 of Slurm ended before its tasks began: FAILED, with status 2: host h2: no GPU", 2},
		{slurm.State{Name: "NODE_FAIL"}, "job first-1: job 12 of Slurm ended before its tasks began: NODE_FAIL: host h2: no GPU", 125},
		{slurm.State{Name: "FAILED", Signal: slurm.NoOutput}, "job first-1: job 12 of Slurm could not write its output, " + s.Output, 125},
	} {
		if err := s.NotStartedError(c.state); err.Error() != c.want || exit.Code(err) != c.code {
			t.Errorf("%+v: %v, status %d", c.state, err, exit.Code(err))
		}
	}
}

func TestWaiting(t *testing.T) {
	s := submission.Submission{Slurm: "12"}
	for want, state := range map[string]slurm.State{
		"job 12 of Slurm is pending (Priority)":           {Name: "PENDING", Reason: "Priority"},
		"job 12 of Slurm is pending":                      {Name: "REQUEUED"},
		"job 12 of Slurm has its nodes, plx starts there": {Name: "RUNNING", Reason: "x"},
		"job 12 of Slurm is pending (JobHeldUser)":        {Name: "PENDING", Reason: "JobHeldUser"},
	} {
		if got := s.Waiting(state); got != want {
			t.Errorf("%+v: %q, want %q", state, got, want)
		}
	}
}

func TestRunsAgain(t *testing.T) {
	for line, want := range map[string]bool{
		"JobState=PENDING Restarts=1 ExitCode=0:0":   true,
		"JobState=PENDING Restarts=0 ExitCode=0:0":   true,
		"JobState=RUNNING Restarts=1 ExitCode=0:0":   true,
		"JobState=FAILED Restarts=0 ExitCode=1:0":    false,
		"JobState=CANCELLED Restarts=1 ExitCode=0:0": false,
	} {
		s := submitted(t)
		answers(t, line)
		if again, err := s.Requeued(t.Context(), 0); again != want || err != nil {
			t.Errorf("%s: %v, %v", line, again, err)
		}
	}
}

// Finished also reports failures of plx in the batch script after the verdict.
func TestFinished(t *testing.T) {
	for line, want := range map[string]int{"JobState=COMPLETED ExitCode=0:0": 0, "JobState=FAILED ExitCode=3:0": 3, "JobState=NODE_FAIL ExitCode=0:0": 125} {
		s := submitted(t)
		answers(t, line)
		if err := s.Finished(t.Context()); exit.Code(err) != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}
