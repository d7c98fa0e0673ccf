package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/executable"
	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/launcher/jobs"
)

// remembered makes a record of a job demo-1 on the hosts h1 and h2, in a home of its own.
func remembered(t *testing.T) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	r := jobs.Record{Job: "demo-1", Name: "demo-run", Program: "train", Created: time.Now(), Hosts: []jobs.HostRecord{
		{Line: "h1: 0,1", Tasks: []string{"ps:0", "worker:0", "worker:1"}}, {Line: "h2: 0", Tasks: []string{"worker:2"}}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}

func TestComplete(t *testing.T) {
	remembered(t)
	hosts := filepath.Join(t.TempDir(), "resources.txt")
	if err := os.WriteFile(hosts, []byte("gpu01: 0\ngpu02: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app := (&command{}).app()
	for line, want := range map[string]string{
		"lo":                                  "logs",
		"logs|":                               "demo-1 demo-run",
		"logs|demo-1|":                        "",
		"logs|--ta":                           "--task --tail",
		"logs|demo-1|--task|worker":           "worker:0 worker:1 worker:2",
		"logs|--task=p":                       "--task=ps:0",
		"attach|--rank|":                      "0 1 2",
		"logs|--host|":                        "h1 h2",
		"launch|--hosts|":                     files,
		"launch|--hosts|" + hosts + "|--ps|g": "gpu01 gpu02",
		"launch|--include|gpu":                "",
		"launch|--color|a":                    "auto always",
		"launch|./train|--color|":             files,
		"launch|--detach|":                    files,
		"exec|--|l":                           files,
		"fetch|demo-1|":                       files,
		"help|pro":                            "probe",
		"completion|":                         "bash zsh fish",
		"nothing|":                            "",
		"probe|--no-such|":                    "",
		"launch|--hosts=" + hosts + "|--incl": "--include",
	} {
		var got []string
		for _, c := range complete(app, strings.Split(line, "|")) {
			word, _, _ := strings.Cut(c, "\t")
			got = append(got, word)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: got %q, want %s", line, got, want)
		}
	}
}

// Keys are typed into each shell as on a terminal, and plx is called with what the shell
// made of them.
func TestCompletionInShells(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plx, and starts shells")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "real"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	remembered(t) // not before: the build has its cache in the home
	// plx, which completes as the real one does, writes its arguments down.
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in __complete|completion) exec %s/real \"$@\" ;; esac\necho \"$*\" >>%[1]s/called\n", dir)
	if err := executable.Write(filepath.Join(dir, "plx"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "subfolder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for shell, start := range map[string]string{
		"bash --noprofile --norc -i": "source <(plx completion bash)",
		"zsh -f -i":                  "autoload -Uz compinit && compinit -u -D && source <(plx completion zsh)",
		"fish --no-config -i":        "plx completion fish | source",
	} {
		t.Run(strings.Fields(shell)[0], func(t *testing.T) {
			if _, err := exec.LookPath(strings.Fields(shell)[0]); err != nil {
				t.Skip(err)
			}
			called := typedInto(t, dir, shell, start+"; plx ready\r", "plx lo\tdemo-1\r", "plx sto\t--gr\t5s demo-r\t\r",
				"plx logs --task wor\t2\r", "plx launch --color alw\t --workdir subf\t\r")
			want := "ready\nlogs demo-1\nstop --grace 5s demo-run\nlogs --task worker:2\nlaunch --color always --workdir subfolder\n"
			if strings.ReplaceAll(called, "/\n", "\n") != want { // zsh takes the last / away again
				t.Errorf("got\n%swant\n%s", called, want)
			}
		})
	}
}

// typedInto types lines into a shell on a terminal, each when the one before has called
// plx, and returns what plx was called with.
func typedInto(t *testing.T, dir, shell string, lines ...string) string {
	t.Helper()
	called := filepath.Join(dir, "called")
	if err := os.WriteFile(called, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("script", "-qec", shell, "/dev/null")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TERM=xterm", "LC_ALL=C.UTF-8")
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	cmd.Stdout, cmd.Stderr = &screen, &screen
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	stop := func() {
		keys.Close()
		select {
		case <-ended:
		case <-time.After(patience.Limit):
			cmd.Process.Kill()
			<-ended
		}
	}
	for i, line := range lines {
		fmt.Fprint(keys, line)
		for deadline := time.Now().Add(patience.Limit); ; time.Sleep(10 * time.Millisecond) {
			text, err := os.ReadFile(called)
			if err == nil && strings.Count(string(text), "\n") > i {
				break
			}
			if time.Now().After(deadline) {
				stop()
				t.Fatalf("%q called nothing: %v\n%s", line, err, screen.String())
			}
		}
	}
	fmt.Fprint(keys, "exit\r")
	stop()
	text, err := os.ReadFile(called)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
