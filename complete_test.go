package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/protocol"
)

// remembered creates a home with the records of job demo-1 on hosts h1 and h2,
// and of job old-1, which has ended.
func remembered(t *testing.T) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	old := jobs.Record{Job: "old-1", Program: "train", Created: time.Now().Add(-time.Hour), Verdict: &protocol.Verdict{}, Hosts: []jobs.HostRecord{{Line: "h1: 0"}}}
	if err := old.Save(); err != nil {
		t.Fatal(err)
	}
	r := jobs.Record{Job: "demo-1", Name: "demo-run", Program: "train", Created: time.Now(), Hosts: []jobs.HostRecord{
		{Line: "h1: 0,1", Tasks: []string{"ps:0", "worker:0", "worker:1"}}, {Line: "h2: 0", Tasks: []string{"worker:2"}}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}

func TestComplete(t *testing.T) {
	remembered(t)
	hosts := filepath.Join(t.TempDir(), "resources.txt")
	if err := os.WriteFile(hosts, []byte("gpu01: 0,1\ngpu02: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app := (&command{}).app()
	for line, want := range map[string]string{
		"lo":                                  "logs",
		"logs|":                               "demo-1 demo-run old-1",
		"logs|--|":                            "demo-1 demo-run old-1",
		"stop|":                               "demo-1 demo-run",
		"stop|old":                            "",
		"launch|--resume|":                    "demo-1 demo-run old-1",
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
		"launch|--color=":                     "--color=auto --color=always --color=never",
		"launch|--on-hang|":                   "report stop restart",
		"launch|--visible|":                   "auto own host",
		"launch|--hosts=":                     files,
		"launch|--workdir=s":                  folders,
		"launch|--venv|":                      folders,
		"launch|--copy|":                      files,
		"launch|--log-dir|":                   folders,
		"launch|--setup|":                     "",
		"launch|--chdir|":                     "",
		"launch|--ps|gpu01,":                  "gpu01,h1 gpu01,h2",
		"launch|--ps|h1,":                     "h1,h1 h1,h2",
		"launch|--hosts|" + hosts + "|--include|gpu01:":   "gpu01:0 gpu01:1",
		"launch|--hosts|" + hosts + "|--include|gpu01:0,": "gpu01:0,0 gpu01:0,1",
		"man|":                                folders,
		"jobs|":                               "",
		"logs|--task=":                        "--task=ps:0 --task=worker:0 --task=worker:1 --task=worker:2",
		"exec|--setup|":                       "",
		"launch|--detach|":                    files,
		"exec|--|l":                           files,
		"fetch|demo-1|":                       folders,
		"fetch|demo-1|results|":               "",
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

// The test types keys into real shells on a terminal. plx is then called with
// what the shell has completed.
func TestCompletionInShells(t *testing.T) {
	real := testhosts.Binary(t, "github.com/plx-run/plx")
	remembered(t)
	for shell, insertAll := range shellsOfTest {
		name := strings.Fields(shell)[0]
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(err)
			}
			t.Parallel()
			dir := recorder(t, real)
			install(t, dir, name)
			lines := []string{insertAll + "plx ready\r", "plx lo\tdemo-1\r", "plx sto\t--gr\t5s demo-r\t\r",
				"plx logs --task wor\t2\r", "plx launch --color alw\t --workdir subf\t\r"}
			for _, p := range positions {
				if name == "fish" {
					lines = append(lines, fmt.Sprintf("%s (complete -C %q | string replace -r '\\t.*' '')\r", p.line[:strings.LastIndex(p.line, " ")], p.line))
				} else {
					lines = append(lines, p.line+"\x1b*\r")
				}
			}
			called := strings.Split(strings.TrimSpace(typedInto(t, dir, shell, lines...)), "\n")
			want := []string{"ready", "logs demo-1", "stop --grace 5s demo-run", "logs --task worker:2", "launch --color always --workdir subfolder"}
			for i, line := range want {
				if got := strings.TrimSuffix(called[i], "/"); got != line { // zsh removes the slash at the end of a directory
					t.Errorf("got %q, want %q", got, line)
				}
			}
			for i, p := range positions {
				if got := offered(p.line, called[len(want)+i]); !slices.Equal(got, strings.Fields(p.want)) {
					t.Errorf("%s: %q, want %s", p.line, got, p.want)
				}
			}
		})
	}
}

// A completion file that a package installs into zsh's $fpath works from the
// first completion on.
func TestPackagedZshCompletion(t *testing.T) {
	if testing.Short() {
		t.Skip("starts zsh")
	}
	if _, err := exec.LookPath("zsh"); err != nil {
		t.Skip(err)
	}
	remembered(t)
	dir := recorder(t, "echo logs; :")
	script, err := completions.ReadFile("completion/plx.zsh")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "_plx"), script, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if called := typedInto(t, dir, "zsh -f -i", "fpath=("+dir+" $fpath); autoload -Uz compinit && compinit -u -D; plx ready\r", "plx lo\tdemo-1\r"); called != "ready\nlogs demo-1\n" {
		t.Errorf("got %q", called)
	}
}

// recorder creates a directory with a fake plx, and a working directory. The
// fake completes like the real plx, and otherwise records its arguments.
func recorder(t *testing.T, real string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ncase $1$# in __complete*|completion2) %s \"$@\"; exit ;; esac\necho \"$*\" >>%s/called\n", real, dir)
	err := executable.Write(filepath.Join(dir, "plx"), []byte(script), 0o755)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "here", "subfolder"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "here", "resources.txt"), []byte("gpu01: 0,1\ngpu02: 0\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// install follows the instructions of plx completion for a shell, in an empty
// home.
func install(t *testing.T, dir, shell string) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + shell + `: +(.*(?:\n {7}.*)*)`).FindStringSubmatch(completionCommand().Description)
	if found == nil {
		t.Fatalf("plx help completion says nothing of %s", shell)
	}
	cmd := exec.Command("sh", "-c", found[1])
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", found[1], err, out)
	}
	// If this directory is missing, fish creates it from all manual pages, in
	// a process that may outlive the test.
	if err := os.MkdirAll(filepath.Join(os.Getenv("HOME"), ".local/share/fish/generated_completions"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// offered returns the words that a shell has inserted at the end of the line.
func offered(line, called string) (words []string) {
	before := strings.Count(line[:strings.LastIndex(line, " ")], " ")
	for _, word := range strings.Fields(called)[before:] {
		if name, value, given := strings.Cut(word, "="); given && strings.HasPrefix(name, "--") {
			word = value
		}
		words = append(words, strings.TrimSuffix(word, "/"))
	}
	slices.Sort(words)
	return words
}

// shellsOfTest maps each shell to the command that binds a key to inserting
// all candidates. fish has no such command.
var shellsOfTest = map[string]string{
	"bash -i": "",
	"zsh -i": "zle -C all complete-word _generic; bindkey '\\e*' all; " +
		"zstyle ':completion:all:*' completer _all_matches _complete; zstyle ':completion:all:*' insert yes; ",
	"fish -i": "",
}

// positions lists command lines, each with the candidates expected at its end.
var positions = []struct{ line, want string }{
	{"plx st", "stacks status stop"},
	{"plx help l", "launch logs"},
	{"plx completion ", "bash fish zsh"},
	{"plx jobs ", ""},
	{"plx nothing ", ""},
	{"plx logs ", "demo-1 demo-run old-1"},
	{"plx attach ", "demo-1 demo-run old-1"},
	{"plx logs -- ", "demo-1 demo-run old-1"},
	{"plx stop ", "demo-1 demo-run"},
	{"plx stop --grace ", ""},
	{"plx logs --rank ", "0 1 2"},
	{"plx logs --task p", "ps:0"},
	{"plx fetch demo-1 ", "subfolder"},
	{"plx launch --hosts ", "resources.txt subfolder"},
	{"plx launch --hosts=", "resources.txt subfolder"},
	{"plx launch --hosts=r", "resources.txt"},
	{"plx launch --workdir ", "subfolder"},
	{"plx launch --workdir=", "subfolder"},
	{"plx launch --env-file ", "resources.txt subfolder"},
	{"plx launch --color ", "always auto never"},
	{"plx launch --color=", "always auto never"},
	{"plx launch --on-hang=re", "report restart"},
	{"plx launch --visible ", "auto host own"},
	{"plx launch --ps=h", "h1 h2"},
	{"plx launch --hosts resources.txt --include ", "gpu01 gpu02"},
	{"plx launch --hosts=resources.txt --include gpu02:", "gpu02:0"},
	{"plx launch --host 'h1: 0 1' --on-h", "--on-hang"},
	{"plx launch ", "resources.txt subfolder"},
	{"plx launch ./train ", "resources.txt subfolder"},
	{"plx launch ./train --color ", "resources.txt subfolder"},
	{"plx launch -- ", "resources.txt subfolder"},
	{"plx exec -- ", "resources.txt subfolder"},
}

// typedInto types lines into a shell on a terminal, each after the previous
// one has called plx. It returns the recorded arguments of plx.
func typedInto(t *testing.T, dir, shell string, lines ...string) string {
	t.Helper()
	called := filepath.Join(dir, "called")
	if err := os.WriteFile(called, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("script", "-qec", shell, "/dev/null")
	cmd.Dir = filepath.Join(dir, "here")
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
