package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// part is what is run by itself.
type part struct {
	name     string
	expected time.Duration // on two cores
	alone    bool          // nothing else may run meanwhile
	commands [][]string
}

// How the fault grid is cut: its 296 cells take 66 minutes one after the other. The
// number is a multiple of the lanes.
const gridParts = 8

// How many inputs each fuzz target gets after its seeds, and about how long that takes.
// A number and not a time: a target that is busy when its time ends fails at random
// ("context deadline exceeded").
const (
	fuzzInputs = "2000x"
	fuzzTime   = 3 * time.Second
)

// parts returns all parts: first what fails soonest, the grid at the end.
func parts(root string) ([]part, error) {
	fuzz, long, err := scan(root)
	if err != nil {
		return nil, err
	}
	others := []part{
		{name: "one point of the benchmark", expected: 4 * time.Minute, alone: true, commands: [][]string{
			{"go", "run", "./internal/bench/sparse", "--hosts", "8", "--rates", "100mbit", "--rounds", "1", "--only", "hybrid", "--out", filepath.Join(os.TempDir(), "plx-bench")}}},
	}
	all := slices.Concat(long, others, fuzz)
	for i := range gridParts {
		name := fmt.Sprintf("%d/%d", i+1, gridParts)
		out := filepath.Join(os.TempDir(), "plx-grid", fmt.Sprint(i+1))
		all = append(all, part{name: "fault grid " + name, expected: 10 * time.Minute, commands: [][]string{
			{"go", "run", "./internal/chaos", "--part", name, "--out", out, "--logs", filepath.Join(out, "logs")}}})
	}
	return all, nil
}

var (
	fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	longFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)
	longTag  = []byte("//go:build long\n")
)

// scan reads the module's test files. It returns a part for each package with fuzz
// targets, and one for each test in a file with the build tag long.
func scan(root string) (fuzz, long []part, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg := "./" + filepath.ToSlash(filepath.Dir(path))
		for _, found := range fuzzFunc.FindAllSubmatch(text, -1) {
			if len(fuzz) == 0 || fuzz[len(fuzz)-1].name != "fuzz "+pkg {
				fuzz = append(fuzz, part{name: "fuzz " + pkg, alone: true, expected: 10 * time.Second})
			}
			p := &fuzz[len(fuzz)-1]
			p.expected += fuzzTime + 2*time.Second
			p.commands = append(p.commands, []string{"go", "test", "-run", "^$", "-fuzz", "^" + string(found[1]) + "$", "-fuzztime", fuzzInputs, pkg})
		}
		if !bytes.Contains(text, longTag) {
			return nil
		}
		for _, found := range longFunc.FindAllSubmatch(text, -1) {
			long = append(long, part{name: "test " + pkg + " " + string(found[1]), expected: time.Minute, alone: true,
				commands: [][]string{{"go", "test", "-tags", "long", "-count=1", "-run", "^" + string(found[1]) + "$", pkg}}})
		}
		return nil
	})
	return fuzz, long, err
}
