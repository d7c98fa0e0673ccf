package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// limit is the timeout for recording one picture.
const limit = 3 * time.Minute

//go:embed folds.py
var folds string

// record runs a scene (the commands of one picture) on test hosts and writes
// the final content of the screen to a file. It then removes the hosts, which
// kills processes that still run.
func (s scene) record(path string) (err error) {
	cluster, err := testhosts.Open(testhosts.Options{Hosts: 2}, testhosts.ReportTo(os.Stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	folder, bin := filepath.Join(cluster.Home, "plx"), filepath.Join(cluster.Home, "bin")
	if err := prepare(folder, bin); err != nil {
		return err
	}
	script := filepath.Join(cluster.Home, "session.sh")
	if err := os.WriteFile(script, []byte(s.shellScript()), 0o644); err != nil {
		return err
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	words := strings.Fields(string(caches))
	// Each scene has its own tmux server.
	tmux := func(args ...string) *exec.Cmd {
		cmd := exec.Command("tmux", append([]string{"-S", filepath.Join(cluster.Home, "tmux"), "-f", "/dev/null"}, args...)...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "HOME="+cluster.Home, "PATH="+bin+":"+os.Getenv("PATH"), "GOCACHE="+words[0], "GOMODCACHE="+words[1],
			"PLX_HOSTS=", "NO_COLOR=", "TERM=xterm-256color")
		return cmd
	}
	if out, err := tmux("new-session", "-d", "-x", fmt.Sprint(s.columns), "-y", fmt.Sprint(s.rows), "bash", script).CombinedOutput(); err != nil {
		return fmt.Errorf("tmux: %w\n%s", err, out)
	}
	text, err := s.await(func() ([]byte, error) { return tmux("capture-pane", "-e", "-p").Output() })
	if out, failed := tmux("kill-server").CombinedOutput(); failed != nil {
		err = errors.Join(err, fmt.Errorf("tmux kill-server: %w\n%s", failed, out))
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.TrimRight(text, "\n")+"\n"), 0o644)
}

// await waits until the screen matches the scene's pattern, s.until, and
// returns the screen.
func (s scene) await(capture func() ([]byte, error)) (string, error) {
	for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		text, err := capture()
		if err != nil {
			return "", fmt.Errorf("tmux capture-pane: %w", err)
		}
		if s.until.MatchString(ansi.Strip(string(text))) {
			return string(text), nil
		}
		if time.Since(begun) > limit {
			return "", fmt.Errorf("the screen did not match %s within %s:\n%s", s.until, limit, text)
		}
	}
}

// shellScript returns a script that prints each command of the scene after a
// prompt and then runs it.
func (s scene) shellScript() string {
	lines := []string{"export TERM=screen-256color"}
	for _, command := range s.commands {
		quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
		lines = append(lines, `printf '\033[1m$ %s\033[0m\n' `+quoted, command)
	}
	return strings.Join(append(lines, `printf '\033[1m$\033[0m '`, "read -r", ""), "\n")
}

// prepare clones the last commit of this repository into folder, and builds
// plx in bin.
func prepare(folder, bin string) error {
	for _, words := range [][]string{
		{"git", "clone", "--quiet", ".", folder},
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, "plx"), "."},
		{"mkdir", filepath.Join(folder, "folds")},
	} {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "folds", "train.py"), []byte(folds), 0o644),
		os.WriteFile(filepath.Join(folder, "resources.txt"), []byte("h1: cpu*2\nh2: cpu*2\n"), 0o644))
}
