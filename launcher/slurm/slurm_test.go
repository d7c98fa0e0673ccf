package slurm

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/exit"
)

// allocation holds the environment variables that sbatch sets.
var allocation = map[string]string{
	"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "h[2-3]", "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
	"SLURM_TASKS_PER_NODE": "4(x2)", "ENVIRONMENT": "BATCH",
}

// with returns a getenv function for the variables in allocation, changed by
// the NAME=VALUE pairs in more. An empty value unsets a variable.
func with(more ...string) func(string) string {
	env := maps.Clone(allocation)
	for _, v := range more {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return func(name string) string { return env[name] }
}

func TestCurrent(t *testing.T) {
	if j, err := Current(func(string) string { return "" }); j != nil || err != nil {
		t.Errorf("outside of Slurm: %v, %v", j, err)
	}
	j, err := Current(with("SLURM_RESTART_COUNT=2"))
	if err != nil || j.Run != (Run{"12", 2}) || !j.Batch || j.tasks != "" {
		t.Errorf("%+v, %v", j, err)
	}
	name := j.Name([]string{"./train", "a b"})
	again, err := Current(with("SLURM_NTASKS=8", "ENVIRONMENT="))
	if err != nil || again.tasks != "4(x2)" || again.Name([]string{"./train", "a b"}) != "" {
		t.Errorf("%+v, %v", again, err)
	}
	if !strings.HasPrefix(name, "slurm-12-") || name != j.Name([]string{"./train", "a b"}) || name == j.Name([]string{"./train", "a", "b"}) {
		t.Errorf("the name is %q", name)
	}
	for env, want := range map[string]string{
		"SLURM_JOB_ID=x":        `job x of Slurm: SLURM_JOB_ID="x" is not a job id`,
		"SLURM_JOB_ID=1;reboot": "is not a job id",
		"SLURM_JOB_NODELIST=":   "job 12 of Slurm: SLURM_JOB_ID is set and SLURM_JOB_NODELIST is not",
		"SLURM_RESTART_COUNT=-": "is no number",
		"SLURM_HET_SIZE=2":      "heterogeneous",
	} {
		_, err := Current(with(env))
		if err == nil || !strings.Contains(err.Error(), want) || exit.Hint(err) != avoidHint {
			t.Errorf("%s: %v", env, err)
		}
	}
}

func TestResourceFileLines(t *testing.T) {
	nodes := []*node{
		{name: "a", managed: true, gpus: "0,3", tasks: 1}, {name: "b", managed: true, tasks: 3}, {name: "c", managed: true},
		{name: "d", tasks: 2}, {name: "e", addr: "10.0.0.5"}, {name: "f", gpus: "GPU-02ba5a4d", addr: "f.example"},
	}
	j := &Job{Run: Run{ID: "12"}}
	lines, err := j.lines(nodes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, l.String())
	}
	want := []string{"a: 0,3", "b: cpu*3", "c: cpu", "d slots=2", "e addr=10.0.0.5", "f: GPU-02ba5a4d"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := j.lines([]*node{{name: "a", gpus: "0,x"}}); err == nil || !strings.HasPrefix(err.Error(), "job 12 of Slurm: ") {
		t.Errorf("a wrong GPU: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	nodes := []*node{{name: "h2"}, {name: "h3"}}
	const text = "NodeName=h3 CPUAlloc=1 Gres=gpu:a100:2(S:0) NodeAddr=10.77.1.3 OS=Linux 6.1 NodeName=x State=MIXED \n" +
		"NodeName=h2 Gres=(null) NodeAddr=h2.example State=IDLE+DRAIN \n"
	if err := describe(nodes, text); err != nil || nodes[0].managed || !nodes[1].managed || nodes[0].addr != "h2.example" || nodes[1].addr != "10.77.1.3" {
		t.Errorf("%+v, %+v, %v", *nodes[0], *nodes[1], err)
	}
	if err := describe([]*node{{name: "h4"}}, text); err == nil || !strings.Contains(err.Error(), "h4") {
		t.Errorf("a node that is missing: %v", err)
	}
}

// fake puts a script in the place of a Slurm command on PATH.
func fake(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := executable.Write(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestAsk(t *testing.T) {
	for script, want := range map[string][2]string{
		"exit 1": {"scontrol: it printed no error message (exit status 1)", avoidHint},
		"echo 'scontrol: error: no such host' >&2; echo later >&2; exit 2":   {"scontrol: no such host (exit status 2)", avoidHint},
		"echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1": {"scontrol: Invalid job id specified (exit status 1)", overHint},
		"echo 'srun: notes' >&2; exit 1":                                     {"scontrol: srun: notes (exit status 1)", avoidHint},
	} {
		t.Run(script, func(t *testing.T) {
			fake(t, "scontrol", script)
			_, err := ask(t.Context(), "scontrol", "ping")
			if err == nil || err.Error() != want[0] || exit.Hint(err) != want[1] {
				t.Errorf("got %v, hint %q", err, exit.Hint(err))
			}
		})
	}
	if _, err := ask(t.Context(), "plx-no-such-command"); err == nil || exit.Hint(err) != pathHint {
		t.Errorf("got %v", err)
	}
	t.Setenv("SLURM_NTASKS", "8")
	t.Setenv("SLURM_CONF", "/x")
	fake(t, "scontrol", `echo "$SLURM_NTASKS $SLURM_CONF"`)
	if out, err := ask(t.Context(), "scontrol"); out != " /x\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestOver(t *testing.T) {
	for script, want := range map[string]bool{
		"echo 'JobId=12 JobState=RUNNING Restarts=1 x'":                      false,
		"echo 'JobId=12 JobState=SUSPENDED Restarts=1'":                      false,
		"echo 'JobId=12 JobState=RUNNING Restarts=2'":                        true, // another run
		"echo 'JobId=12 JobState=CANCELLED Restarts=1'":                      true,
		"echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1": true,
	} {
		fake(t, "scontrol", script)
		if over, err := (Run{"12", 1}).HasEnded(t.Context()); over != want || err != nil {
			t.Errorf("%s: %v, %v", script, over, err)
		}
	}
	fake(t, "scontrol", "exit 1")
	if _, err := (Run{"12", 1}).HasEnded(t.Context()); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("no answer: %v", err)
	}
}
