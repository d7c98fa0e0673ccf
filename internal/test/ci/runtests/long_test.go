package main

import (
	"encoding/json"
	"go/build/constraint"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/chaos"
)

const root = "../../../.."

// parts returns what scripts/test-long prints about its parts.
func parts(t *testing.T, flag string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux, as the long tests do")
	}
	cmd := exec.Command("scripts/test-long", flag)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

var testOrFuzz = regexp.MustCompile(`(?m)^func (Test|Fuzz)(\w+)\(\w+ \*testing\.[TF]\)`)

// Every fuzz target must be in a part of the long tests, and so must every
// test in a file whose build tags exclude it from CI's normal test run.
func TestEveryLongTestHasAPart(t *testing.T) {
	ran := map[string]bool{}
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(parts(t, "-n"), -1) {
		ran[word] = true
	}
	for _, c := range chaos.Grid() {
		if !ran[c.Arch] {
			t.Errorf("the cell %s of the fault grid is in no part", c.Name())
		}
	}
	long, fuzz := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out := leftOut(t, string(text))
		for _, f := range testOrFuzz.FindAllStringSubmatch(string(text), -1) {
			name := f[1] + f[2]
			switch {
			case f[1] == "Fuzz":
				fuzz++
			case out:
				long++
			default:
				continue
			}
			if !ran[name] {
				t.Errorf("%s: %s is in no part", path, name)
			}
		}
		return nil
	})
	if err != nil || long < 100 || fuzz < 50 {
		t.Errorf("%d long tests, %d fuzz targets, %v", long, fuzz, err)
	}
}

// leftOut reports whether CI's normal test run excludes a file that is built
// with the tag long or without the race detector.
func leftOut(t *testing.T, text string) bool {
	for line := range strings.Lines(text) {
		if !constraint.IsGoBuild(line) {
			continue
		}
		x, err := constraint.Parse(line)
		if err != nil {
			t.Error(err)
			return false
		}
		with := func(also string) bool {
			return x.Eval(func(tag string) bool { return tag == "linux" || tag == "amd64" || tag == "cgo" || tag == also })
		}
		return !with("race") && (with("") || with("long"))
	}
	return false
}

// The nightly workflow must run every part exactly once.
func TestNightlyRunsAllParts(t *testing.T) {
	workflow, err := os.ReadFile(filepath.Join(root, ".github/workflows/test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*parts: (\[.*\])$`).FindSubmatch(workflow)
	var chosen []string
	if line == nil || json.Unmarshal(line[1], &chosen) != nil {
		t.Fatal("the workflow has no list of parts")
	}
	for name := range strings.Lines(parts(t, "-list")) {
		runs := 0
		for _, expression := range chosen {
			if regexp.MustCompile(expression).MatchString(name) {
				runs++
			}
		}
		if runs != 1 {
			t.Errorf("a night runs this %d times: %s", runs, name)
		}
	}
}
