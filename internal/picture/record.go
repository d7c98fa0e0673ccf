package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// The size of the terminal in characters.
const columns, rows = 88, 40

// limit bounds the whole session.
const limit = "3m"

// resources is the resource file of the session: the hosts have no GPUs.
const resources = "h1: cpu*2\nh2: cpu*2\n"

// session is what is typed: a PyTorch program, and one of plx's own trainer. README.md
// has these commands too.
var session = []string{
	"cat resources.txt",
	"plx launch --hosts resources.txt --workdir examples/torch python3 train.py",
	"plx launch --hosts resources.txt ./examples/mlp --niters 301",
}

// record runs the session on test hosts and writes what arrived at its terminal.
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
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	cache := strings.Fields(string(caches))
	log := filepath.Join(cluster.Home, "typescript")
	cmd := exec.Command("timeout", "--foreground", limit, "script", "--quiet", "--return", "--command", shellScript(), log)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "HOME="+cluster.Home, "PATH="+bin+":"+os.Getenv("PATH"), "SHELL=/bin/bash", "TERM=xterm-256color",
		"PLX_HOSTS=", "NO_COLOR=", "GOCACHE="+cache[0], "GOMODCACHE="+cache[1], "GOPATH="+cache[2])
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the session: %w\n%s", err, out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	return os.WriteFile(path, typed(text), 0o644)
}

// shellScript prints each command of the session as if it was typed, and runs it.
func shellScript() string {
	lines := []string{fmt.Sprintf("stty cols %d rows %d", columns, rows)}
	for _, command := range session {
		quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
		lines = append(lines, `printf '\033[1m$ %s\033[0m\n' `+quoted, command+" || exit")
	}
	return strings.Join(lines, "\n")
}

// typed leaves out the two lines that script(1) adds.
func typed(log []byte) []byte {
	log = regexp.MustCompile(`(?s)^Script started[^\n]*\n`).ReplaceAll(log, nil)
	return regexp.MustCompile(`(?s)\n*Script done[^\n]*\n$`).ReplaceAll(log, []byte("\n"))
}

// prepare clones this repository into folder, without what is not committed, and builds
// plx in bin.
func prepare(folder, bin string) error {
	for _, words := range [][]string{
		{"git", "clone", "--quiet", ".", folder},
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, "plx"), "."},
		{"go", "build", "-trimpath", "-o", filepath.Join(bin, "warm"), "./examples/mlp"}, // the session shows no build
	} {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
		}
	}
	return os.WriteFile(filepath.Join(folder, "resources.txt"), []byte(resources), 0o644)
}
