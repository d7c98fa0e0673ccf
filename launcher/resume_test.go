package launcher

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestResume(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, r := range []jobs.Record{
		{Job: "old-1"}, // record of a plx version without checkpoint names
		{Job: "mnist-1", Name: "mnist", Checkpoints: "mnist"},
		{Job: "mnist-2", Name: "mnist", Checkpoints: "first"}, // resumed another
		{Job: "train-1", Checkpoints: "train-1"},
		{Job: "script-1", Name: "script", Verdict: &protocol.Verdict{Saved: &protocol.Saved{Step: 7}}},
		{Job: "true-1", Name: "true", Verdict: &protocol.Verdict{Saved: &protocol.Saved{Cause: "no"}}},
	} {
		r.Created, r.Hosts = begun.Add(time.Duration(i)*time.Hour), []jobs.HostRecord{{Line: "h1"}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		name, resume string
		want, says   string
		trainer      bool
		args         []string
	}{
		"nothing":               {want: ""},
		"a new name":            {name: "fresh", want: "fresh"},
		"a name used before":    {"mnist", "", "mnist", "job mnist-1 had the name mnist too: this job resumes from", true, []string{"--ckpt-dir", "."}},
		"no --ckpt-dir":         {"mnist", "", "mnist", "job mnist-1 had the name mnist too: if this job keeps checkpoints, it resumes", true, nil},
		"without trainer":       {"mnist", "", "mnist", "job mnist-1 had the name mnist too: it means this job from now on", false, []string{"train.py", "--ckpt-dir", "."}},
		"what has saved":        {"script", "", "script", "job script-1 had the name script too: if this job keeps checkpoints, it resumes", false, nil},
		"what has not saved":    {"true", "", "true", "job true-1 had the name true too: it means this job from now on", false, nil},
		"by id":                 {"", "train-1", "train-1", "resume job train-1", false, nil},
		"by the newest of name": {"", "mnist", "first", "resume job mnist-2", false, nil},
		"named otherwise":       {"other", "mnist-1", "mnist", "under the name mnist", false, nil},
		"of old":                {"", "old-1", "old-1", "resume job old-1", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			l := &launch{cfg: Config{Name: c.name, Resume: c.resume, Args: c.args}, program: entrypoint.Program{Trainer: c.trainer}, printer: console.NewPrinter(console.Terminal{Stderr: &said})}
			if name, err := l.checkpointName(t.Context()); err != nil || name != c.want {
				t.Errorf("%q, %v; want %q", name, err, c.want)
			}
			if !strings.Contains(said.String(), c.says) || c.says == "" && said.Len() > 0 {
				t.Errorf("said %q, want %q", said.String(), c.says)
			}
		})
	}
	l := &launch{cfg: Config{Resume: "never"}, printer: console.NewPrinter(console.Terminal{Stderr: &bytes.Buffer{}})}
	if _, err := l.checkpointName(t.Context()); exit.Code(err) != exit.CodeUsage || exit.Hint(err) == "" || !strings.Contains(err.Error(), "--resume: job never") {
		t.Errorf("%v (%d, hint %q), want a mistake with a hint", err, exit.Code(err), exit.Hint(err))
	}
}

// A hint how to resume the job is printed only if the job has lost work.
func TestResumeHintIsPrintedIfWorkIsLost(t *testing.T) {
	for _, c := range []struct {
		args    []string
		code    int
		stepped bool
		want    bool
	}{
		{[]string{"--steps", "9", "--ckpt-dir=saved"}, 1, true, true},
		{[]string{"-ckpt-dir", "saved"}, 143, true, true},
		{[]string{"--ckpt-dir", "saved"}, 0, true, false},
		{[]string{"--ckpt-dir", "saved"}, 1, false, false}, // the checkpoint itself may be the cause of the failure
		{[]string{"--ckpt-dirs", "saved", "ckpt-dir"}, 1, true, false},
	} {
		var said bytes.Buffer
		jobs.PrintVerdict(console.NewPrinter(console.Terminal{Stderr: &said}), &jobs.Record{Job: "mnist-1", Saves: saves(c.args)},
			protocol.Verdict{Code: c.code, Reason: "over", Stepped: c.stepped}, nil)
		if got := strings.Contains(said.String(), "hint: plx launch --resume mnist-1 resumes"); got != c.want {
			t.Errorf("%+v: said %q", c, said.String())
		}
	}
}

// If the last lines of a program show that it expects another launcher, a hint
// is printed once.
func TestLastOutputLinesLeadToHint(t *testing.T) {
	for tail, want := range map[string]string{
		"RuntimeError: CUDA error: invalid device ordinal\ninvalid device ordinal\n":                                "hint: --visible host",
		"train.py: error: the following arguments are required: --local_rank\n":                                     "hint: plx sets the variable LOCAL_RANK",
		"train.py: error: the following arguments are required: --local-rank/--local_rank, --data\n":                "hint: plx sets the variable LOCAL_RANK",
		"ModuleNotFoundError: No module named 'nonsense'\n":                                                         "hint: a host's Python may lack it: --venv DIR",
		"RuntimeError: DataLoader worker (pid 17) is killed by signal: Bus error. It is possible\n":                 "hint: a container has a /dev/shm of its own",
		"ERROR: Unexpected bus error. This might be caused by insufficient shared memory (shm).\nRuntimeError: x\n": "hint: a container has a /dev/shm of its own",
		"ValueError: no data\n": "",
	} {
		var said bytes.Buffer
		jobs.PrintVerdict(console.NewPrinter(console.Terminal{Stderr: &said}), &jobs.Record{Job: "mnist-1"},
			protocol.Verdict{Code: 1, First: &protocol.Exit{Tail: tail}}, nil)
		if !strings.Contains(said.String(), want) || strings.Count(said.String(), "hint:") != min(len(want), 1) {
			t.Errorf("%s: said %q", tail, said.String())
		}
	}
}

// A hint explains how a task ended, for a kill without a known cause and for a
// missing python.
func TestHintExplainsHowTaskEnded(t *testing.T) {
	for want, v := range map[string]protocol.Verdict{
		"hint: a user, a batch system or the limit of a container": {Code: 137, Host: "h2", First: &protocol.Exit{Signal: 9, Code: 137}},
		"hint: plx exec --host h2 -- free -h":                      {Code: 137, Host: "h2", First: &protocol.Exit{Signal: 9, Code: 137, OOMKills: 1}},
		"hint: plx exec --host h2 -- sh -c 'df -h /dev/shm;":       {Code: 135, Host: "h2", First: &protocol.Exit{Signal: 7, Code: 135, Shm: "/dev/shm is full (8 MiB, 0 left)"}},
		"hint: plx exec --host h3 -- sh -c 'df -h /dev/shm;":       {Code: 1, Host: "h3", First: &protocol.Exit{Code: 1, Cause: "RuntimeError", Shm: "/dev/shm is small (8 MiB, 8 MiB left)"}},
		"hint: memory that was mapped from a file":                 {Code: 135, Host: "h2", First: &protocol.Exit{Signal: 7, Code: 135}},
		"hint: plx launch --detach leaves the job":                 {Code: 125, Reason: "plx was suspended for 12s", Suspended: 12 * time.Second},
		"hint: many hosts have no python: name python3":            {Code: 127, Reason: "worker:0 on h2 could not start: python: not found on PATH /bin; python3 is there", First: &protocol.Exit{Code: 127}},
		"": {Code: 137, Host: "h2", First: &protocol.Exit{Signal: 9, Code: 137, Cause: "it froze"}},
	} {
		var said bytes.Buffer
		jobs.PrintVerdict(console.NewPrinter(console.Terminal{Stderr: &said}), &jobs.Record{Job: "mnist-1"}, v, nil)
		if !strings.Contains(said.String(), want) || strings.Count(said.String(), "hint:") != min(len(want), 1) {
			t.Errorf("%+v: said %q", v, said.String())
		}
	}
}
