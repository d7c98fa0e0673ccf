package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Every fuzz target and every part of the grid is in some part.
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
	if grid != gridParts || targets < 50 || !seen["one point of the benchmark"] {
		t.Errorf("%d parts of the grid, %d fuzz targets, %v", grid, targets, seen)
	}
}

// All parts run, also after one that failed; those that are alone in their turn.
func TestAllPartsRun(t *testing.T) {
	all := []part{{name: "a", alone: true}, {name: "b"}, {name: "c", alone: true}}
	var mu sync.Mutex
	var ran []string
	r := runner{run: func(_ context.Context, p part) error {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, p.name)
		return errors.New(p.name)
	}}
	if failed := r.all(t.Context(), all); failed != 3 || r.done != 3 || strings.Join(ran, "") != "abc" {
		t.Errorf("%d failed, %d done, ran %v", failed, r.done, ran)
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
