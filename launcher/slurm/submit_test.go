package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/exit"
)

// The batch script runs exactly the given words, in the submission's
// directory.
func TestScriptRunsCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	plx := filepath.Join(dir, "p l x")
	if err := executable.Write(plx, []byte("#!/bin/sh\npwd; echo \"$PLX_SUBMITTED\"; printf '%s|' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	words := []string{"launch", "--setup=a 'b' \"c\" $HOME `x`", "", "*", "a\nb", "ü", "-n", "~"}
	s := Submission{Dir: dir, Job: "job-1", Command: append([]string{plx}, words...)}
	out, err := exec.Command("/bin/sh", "-c", s.Script()).Output()
	if want := dir + "\njob-1\n" + strings.Join(words, "|") + "|"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	s.Dir = "/plx no such folder"
	out, err = exec.Command("/bin/sh", "-c", s.Script()).CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exit.CodePlx || !strings.Contains(string(out), "there is no /plx no such folder here\nplx: hint: ") {
		t.Errorf("a folder that is missing: %q, %v", out, err)
	}
}

func TestSubmit(t *testing.T) {
	s := Submission{Name: "first", Dir: t.TempDir(), Output: "/out-%j", Options: []string{"--time=1:00:00"}, Job: "job-1", Command: []string{"/plx", "launch", "true"}}
	seen := filepath.Join(t.TempDir(), "seen")
	t.Setenv("SBATCH_ACCOUNT", "mine")
	fake(t, "sbatch", `{ pwd; printf '%s\n' "$@" "$SBATCH_ACCOUNT"; cat; } >`+seen+"; echo '4711;east'")
	if id, err := s.Submit(t.Context()); id != "4711" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	got, err := os.ReadFile(seen)
	want := strings.Join([]string{s.Dir, "--parsable", "--job-name=first", "--output=/out-%j", "--open-mode=append", "--signal=B:TERM@120", "--time=1:00:00", "mine", s.Script()}, "\n")
	if string(got) != want || err != nil {
		t.Errorf("sbatch got %q, %v, want %q", got, err, want)
	}
	for script, want := range map[string]string{
		"echo 'sbatch: error: no such partition' >&2; exit 1": "sbatch: no such partition (exit status 1)",
		"echo submitted": `sbatch printed "submitted\n", which is not a job id`,
	} {
		fake(t, "sbatch", script)
		if _, err := s.Submit(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: %v", script, err)
		}
	}
	t.Setenv("PATH", "/nowhere")
	if _, err := s.Submit(t.Context()); err == nil || err.Error() != "there is no sbatch here" || exit.Hint(err) == "" {
		t.Errorf("no sbatch: %v, hint %q", err, exit.Hint(err))
	}
}

func TestReadState(t *testing.T) {
	for line, want := range map[string]State{
		"JobId=12 JobName=x JobState=PENDING Reason=Resources Dependency=(null) Restarts=0 ExitCode=0:0 NumNodes=2-3 StdOut=/a": {Name: "PENDING", Reason: "Resources", Output: "/a", Nodes: 2},
		"JobId=12 JobState=RUNNING Reason=None Restarts=3 ExitCode=0:0 NumNodes=4":                                              {Name: "RUNNING", Restarts: 3, Nodes: 4},
		"JobId=12 JobState=FAILED Reason=NonZeroExitCode Restarts=0 ExitCode=3:0":                                               {Name: "FAILED", Reason: "NonZeroExitCode", Code: 3},
		"JobId=12 JobState=CANCELLED Reason=None ExitCode=0:15":                                                                 {Name: "CANCELLED", Signal: 15},
	} {
		if got, err := readState(line); got != want || err != nil {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "JobId=12", "JobState=RUNNING ExitCode=0", "JobState=RUNNING Restarts=-1", "JobState=FAILED ExitCode=x:0"} {
		if got, err := readState(line); err == nil {
			t.Errorf("%q: %+v", line, got)
		}
	}
	for name, want := range map[string][2]bool{ // waits, over
		"PENDING": {true, false}, "REQUEUE_HOLD": {true, false}, "RUNNING": {}, "CONFIGURING": {}, "COMPLETING": {}, "SUSPENDED": {},
		"COMPLETED": {false, true}, "NODE_FAIL": {false, true}, "PREEMPTED": {false, true}, Forgotten: {false, true},
	} {
		if s := (State{Name: name}); s.Queued() != want[0] || s.Over() != want[1] {
			t.Errorf("%s: waits %v, over %v", name, s.Queued(), s.Over())
		}
	}
}

func TestCheckOption(t *testing.T) {
	var refused []string
	all := []string{"--account=x", "-Ax", "-n4", "--array=1-2", "--array", "-a1", "--wrap=x", "--wait", "-W", "account=x", "--", "-", ""}
	for _, option := range all {
		if err := CheckOption(option); err != nil {
			refused = append(refused, option)
			if exit.Code(err) != exit.CodeUsage || exit.Hint(err) == "" {
				t.Errorf("%q: %v, status %d, hint %q", option, err, exit.Code(err), exit.Hint(err))
			}
		}
	}
	if !slices.Equal(refused, all[3:]) {
		t.Errorf("refused are %q", refused)
	}
}
