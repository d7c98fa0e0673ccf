package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Every fuzz target, every long test and every part of the grid is in some part.
func TestParts(t *testing.T) {
	const root = "../../../.."
	all, err := parts(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	grid, targets := 0, 0
	var commands strings.Builder
	for _, p := range all {
		if seen[p.name] || p.expected <= 0 || len(p.commands) == 0 {
			t.Errorf("%+v", p)
		}
		seen[p.name] = true
		if strings.HasPrefix(p.name, "fault grid ") {
			grid++
		}
		for _, words := range p.commands {
			if slices.Contains(words, "-fuzz") {
				targets++
			}
			if strings.HasPrefix(words[0], "scripts/") {
				if _, err := os.Stat(filepath.Join(root, words[0])); err != nil {
					t.Error(err)
				}
			}
			commands.WriteString(strings.NewReplacer("(", " ", ")", " ", "|", " ").Replace(strings.Join(words, " ")) + " \n")
		}
	}
	if grid != gridParts || targets < 50 {
		t.Errorf("%d parts of the grid, %d fuzz targets", grid, targets)
	}
	if !strings.Contains(commands.String(), " TestCallsAllocateNothing ") {
		t.Error("tests that the race detector leaves out are in no part")
	}
	_, long, err := scan(root)
	if err != nil || len(long["./e2e"]) < 50 {
		t.Errorf("%d long tests of e2e, %v", len(long["./e2e"]), err)
	}
	for pkg, tests := range long {
		for _, test := range tests {
			if !strings.Contains(commands.String(), " "+test+" ") {
				t.Errorf("%s %s is in no part", pkg, test)
			}
		}
	}
}

// The nightly workflow runs every part once.
func TestNightlyRunsAllParts(t *testing.T) {
	const root = "../../../.."
	workflow, err := os.ReadFile(filepath.Join(root, ".github/workflows/test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*parts: (\[.*\])$`).FindSubmatch(workflow)
	var chosen []string
	if line == nil || json.Unmarshal(line[1], &chosen) != nil {
		t.Fatal("the workflow has no list of parts")
	}
	all, err := parts(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		runs := 0
		for _, expression := range chosen {
			if regexp.MustCompile(expression).MatchString(p.name) {
				runs++
			}
		}
		if runs != 1 {
			t.Errorf("part %s runs %d times a night", p.name, runs)
		}
	}
}

// All parts run, even after one that failed; those that are alone in their turn.
func TestAllPartsRun(t *testing.T) {
	all := []part{{name: "a", alone: true}, {name: "b"}, {name: "c", alone: true}}
	var mu sync.Mutex
	var ran, rows []string
	r := runner{run: func(_ context.Context, p part) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, p.name)
		return []string{"p TestX"}, errors.New(p.name)
	}, record: func(row string) { rows = append(rows, row) }}
	if failed := r.all(t.Context(), all); failed != 3 || r.done != 3 || strings.Join(ran, "") != "abc" {
		t.Errorf("%d failed, %d done, ran %v", failed, r.done, ran)
	}
	if len(rows) != 3 || rows[0] != "| a | FAILED | 0 | p TestX |" {
		t.Errorf("recorded %q", rows)
	}
}

// A command that fails fails its part, whose other commands run too. What was repeated is
// told.
func TestExecute(t *testing.T) {
	t.Chdir(t.TempDir())
	repeated, err := execute(t.Context(), part{name: "a 1/2", commands: [][]string{{"true"}, {"false"}, {"echo", "flaky: p TestX"}}})
	if err == nil || !strings.Contains(err.Error(), "false") || len(repeated) != 1 || repeated[0] != "p TestX" {
		t.Errorf("repeated %q, %v", repeated, err)
	}
	if text, err := os.ReadFile("build/test-long/a-1-2.log"); err != nil || string(text) != "flaky: p TestX\n" {
		t.Errorf("kept %q, %v", text, err)
	}
	if _, err := execute(t.Context(), part{commands: [][]string{{"true"}}}); err != nil {
		t.Error(err)
	}
}
