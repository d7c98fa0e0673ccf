package submit_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/launcher/submit"
)

// queue puts fake Slurm commands on PATH, with a job that is pending until
// scancel ends it.
func queue(t *testing.T) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	for name, text := range map[string]string{
		"sbatch":   "cat >" + filepath.Join(dir, "script") + "; echo 'JobState=PENDING Reason=Priority ExitCode=0:0' >" + state + "; echo 12",
		"scontrol": "cat " + state,
		"scancel":  "echo 'JobState=CANCELLED ExitCode=0:15' >" + state,
	} {
		if err := executable.Write(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// printed collects what plx prints on stderr, and reports each line.
type printed struct {
	bytes.Buffer
	lines chan string
}

func (p *printed) Write(text []byte) (int, error) {
	p.lines <- string(text)
	return p.Buffer.Write(text)
}

func TestRun(t *testing.T) {
	config := submit.Config{Program: "./train", Words: []string{"--ps=none"}, Args: []string{"./train", "-x"}, Environ: []string{"TOKEN=secret"}, Options: []string{"--nodes=2"}}
	for name, c := range map[string]struct {
		signals []syscall.Signal
		code    int
		last    string
		over    bool
	}{
		"Ctrl-C":  {[]syscall.Signal{syscall.SIGINT}, 130, "stopped before its tasks began: job 12 of Slurm is cancelled", true},
		"SIGTERM": {[]syscall.Signal{syscall.SIGTERM}, 143, "stopped before its tasks began: job 12 of Slurm is cancelled", true},
		"SIGHUP":  {[]syscall.Signal{syscall.SIGHUP}, 129, "is pending (Priority)", false},
	} {
		t.Run(name, func(t *testing.T) {
			queue(t)
			stderr := &printed{lines: make(chan string, 100)}
			var stdout bytes.Buffer
			cfg := config
			cfg.Terminal = console.Terminal{Stdout: &stdout, Stderr: stderr}
			sig := make(chan os.Signal, 1)
			go func() {
				for line := range stderr.lines {
					if strings.Contains(line, "is pending (Priority)") {
						for _, s := range c.signals {
							sig <- s
						}
					}
				}
			}()
			code, err := submit.Run(t.Context(), cfg, sig)
			close(stderr.lines)
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			if code != c.code || !strings.Contains(lines[len(lines)-1], c.last) || (err != nil) == c.over {
				t.Errorf("status %d, %v, printed %q", code, err, lines)
			}
			all, err := submission.All()
			if len(all) != 1 || err != nil || (all[0].Over != nil) != c.over {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
	t.Run("detached", func(t *testing.T) {
		queue(t)
		var stdout bytes.Buffer
		cfg := config
		cfg.Terminal, cfg.Detach = console.Terminal{Stdout: &stdout, Stderr: new(bytes.Buffer)}, true
		code, err := submit.Run(t.Context(), cfg, nil)
		all, _ := submission.All()
		if code != 0 || err != nil || len(all) != 1 || stdout.String() != all[0].Job+"\n" || !strings.HasPrefix(all[0].Job, "train-") {
			t.Errorf("%d, %v, %q, %+v", code, err, &stdout, all)
		}
	})
	t.Run("a dry run", func(t *testing.T) {
		queue(t)
		var stdout bytes.Buffer
		cfg := config
		cfg.Terminal, cfg.DryRun = console.Terminal{Stdout: &stdout, Stderr: new(bytes.Buffer)}, true
		code, err := submit.Run(t.Context(), cfg, nil)
		left, unread := os.ReadDir(filepath.Join(os.Getenv("HOME"), ".plx"))
		if code != 0 || err != nil || !errors.Is(unread, os.ErrNotExist) || strings.Contains(stdout.String(), "secret") || !strings.Contains(stdout.String(), " ./train -x\nEND\n") {
			t.Errorf("%d, %v, %v, %s", code, err, left, &stdout)
		}
	})
	t.Run("refused", func(t *testing.T) {
		queue(t)
		dir := t.TempDir()
		if err := executable.Write(filepath.Join(dir, "sbatch"), []byte("#!/bin/sh\necho 'sbatch: error: too much' >&2\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		cfg := config
		cfg.Terminal = console.Terminal{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer)}
		code, err := submit.Run(t.Context(), cfg, nil)
		left, unread := os.ReadDir(filepath.Join(os.Getenv("HOME"), ".plx", "jobs"))
		if code != exit.CodePlx || err == nil || err.Error() != "sbatch: too much (exit status 1)" || len(left) > 0 || unread != nil {
			t.Errorf("%d, %v, left are %v, %v", code, err, left, unread)
		}
	})
}
