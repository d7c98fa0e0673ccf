package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/internal/testhosts"
)

// The size of the terminal in characters.
const columns, rows = 88, 40

// limit bounds the whole session.
const limit = "3m"

// session is what is typed. README.md has these commands too, but for the mistake at the end.
var session = []string{
	"plx probe --hosts resources.txt",
	"plx launch --hosts resources.txt --workdir examples/torch python3 train.py",
	"plx launch --hosts resources.txt python3 -c 'import nonsense'",
}

// record runs the session on test hosts and writes what the screen shows at its end.
func record(path string) (err error) {
	cluster, err := testhosts.Open(testhosts.Options{Hosts: 2}, testhosts.ReportTo(os.Stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	folder, bin := filepath.Join(cluster.Home, "plx"), filepath.Join(cluster.Home, "bin")
	if err := prepare(folder, bin); err != nil {
		return err
	}
	screen, script := filepath.Join(cluster.Home, "screen"), filepath.Join(cluster.Home, "session.sh")
	if err := os.WriteFile(script, []byte(shellScript(screen)), 0o644); err != nil {
		return err
	}
	// The server is of this run alone: it ends with its only session.
	tmux := []string{"-S", filepath.Join(cluster.Home, "tmux"), "-f", "/dev/null"}
	begin := exec.Command("tmux", append(tmux, "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), "bash", script)...)
	begin.Dir = folder
	begin.Env = append(os.Environ(), "HOME="+cluster.Home, "PATH="+bin+":"+os.Getenv("PATH"), "PLX_HOSTS=", "NO_COLOR=", "TERM=xterm-256color")
	if out, err := begin.CombinedOutput(); err != nil {
		return fmt.Errorf("tmux: %w\n%s", err, out)
	}
	out, err := exec.Command("timeout", append([]string{limit, "tmux"}, append(tmux, "wait-for", "shown")...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("the session did not end within %s: %w\n%s", limit, err, out)
	}
	if out, failed := exec.Command("tmux", append(tmux, "kill-server")...).CombinedOutput(); failed != nil {
		err = errors.Join(err, fmt.Errorf("tmux kill-server: %w\n%s", failed, out))
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(screen)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.TrimRight(string(text), "\n")+"\n"), 0o644)
}

// shellScript shows each command of the session as if it was typed, runs it, and keeps the
// screen in a file.
func shellScript(screen string) string {
	lines := []string{"export TERM=screen-256color"}
	for _, command := range session {
		quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
		lines = append(lines, `printf '\033[1m$ %s\033[0m\n' `+quoted, command)
	}
	lines = append(lines, "tmux capture-pane -e -p >"+screen, "tmux wait-for -S shown", "read -r", "")
	return strings.Join(lines, "\n")
}

// prepare clones this repository into folder, without what is not committed, and builds plx in
// bin.
func prepare(folder, bin string) error {
	for _, words := range [][]string{
		{"git", "clone", "--quiet", ".", folder},
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, "plx"), "."},
	} {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
		}
	}
	return os.WriteFile(filepath.Join(folder, "resources.txt"), []byte("h1: cpu*2\nh2: cpu*2\n"), 0o644)
}
