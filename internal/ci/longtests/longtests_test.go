package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Every fuzz target and every part of the grid is in some part, and a commit's share
// begins anywhere.
func TestParts(t *testing.T) {
	all, err := parts("../../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	grid, targets := 0, 0
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
		}
	}
	if grid != gridParts || targets < 50 || !seen["comparison with the first architecture"] || !seen["one point of the benchmark"] {
		t.Errorf("%d parts of the grid, %d fuzz targets, %v", grid, targets, seen)
	}
	if a, b := from(all, "a"), from(all, "b"); len(a) != len(all) || a[0].name == b[0].name || from(all, "")[0].name != all[0].name {
		t.Errorf("%d parts from %s, %s", len(a), a[0].name, b[0].name)
	}
}

// Parts that do not fit are left out, and shorter ones after them are not.
func TestOnlyWhatFitsRuns(t *testing.T) {
	all := []part{{name: "a", expected: time.Minute, alone: true}, {name: "b", expected: time.Hour}, {name: "c", expected: time.Minute}}
	var mu sync.Mutex
	var ran []string
	r := runner{within: 10 * time.Minute, begun: time.Now(), run: func(_ context.Context, p part) error {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, p.name)
		return errors.New(p.name)
	}}
	if failed := r.all(t.Context(), all); failed != 2 || r.done != 2 || strings.Join(ran, "") != "ac" {
		t.Errorf("%d failed, %d done, ran %v", failed, r.done, ran)
	}
	r = runner{run: r.run}
	if failed := r.all(t.Context(), all); failed != 3 {
		t.Errorf("%d failed without a limit", failed)
	}
}

// A command that fails ends its part.
func TestExecute(t *testing.T) {
	if err := execute(t.Context(), part{commands: [][]string{{"true"}, {"false"}, {"no-such-program"}}}); err == nil || !strings.Contains(err.Error(), "false") {
		t.Error(err)
	}
	if err := execute(t.Context(), part{commands: [][]string{{"true"}}}); err != nil {
		t.Error(err)
	}
}
