package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// part is what is run or left out as a whole.
type part struct {
	name     string
	expected time.Duration // on two cores; a part that takes three times as long has failed
	alone    bool          // nothing else may run meanwhile
	commands [][]string
}

// How the fault grid is cut: its 296 cells take 66 minutes one after the other. A part
// fits into what .ci/run has for long tests. The number is a multiple of the lanes.
const gridParts = 48

// How many inputs each fuzz target gets after its seeds, and about how long that takes.
// A number and not a time: a target that is busy when its time ends fails at random
// ("context deadline exceeded").
const (
	fuzzInputs = "2000x"
	fuzzTime   = 3 * time.Second
)

// parts returns all parts, in an order in which neighbours differ: a commit's share
// has some of each kind.
func parts(root string) ([]part, error) {
	fuzz, long, err := scan(root)
	if err != nil {
		return nil, err
	}
	others := []part{
		{name: "comparison with the first architecture", expected: 2 * time.Minute, alone: true, commands: [][]string{{"scripts/compare-versions"}}},
		{name: "one point of the benchmark", expected: 4 * time.Minute, alone: true, commands: [][]string{
			{"go", "run", "./internal/bench/sparse", "--hosts", "8", "--rates", "100mbit", "--rounds", "1", "--only", "hybrid", "--out", filepath.Join(os.TempDir(), "plx-bench")}}},
	}
	others = slices.Concat(long, others, fuzz)
	var all []part
	for i := range gridParts {
		name := fmt.Sprintf("%d/%d", i+1, gridParts)
		out := filepath.Join(os.TempDir(), "plx-grid", fmt.Sprint(i+1))
		all = append(all, part{name: "fault grid " + name, expected: 100 * time.Second, commands: [][]string{
			{"go", "run", "./internal/chaos", "--part", name, "--out", out, "--logs", filepath.Join(out, "logs")}}})
		if n := i + 1; n%lanes == 0 {
			all = append(all, others[(n-lanes)*len(others)/gridParts:n*len(others)/gridParts]...)
		}
	}
	return all, nil
}

var (
	fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	longFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)
	longTag  = []byte("//go:build long\n")
)

// slowTests are tests with the build tag long that take longer than a minute, by name.
var slowTests = map[string]time.Duration{
	"TestGoreleaser":             6 * time.Minute, // it builds goreleaser
	"TestSlowIsNotHung":          2 * time.Minute,
	"TestPlantedGoHangs":         3 * time.Minute,
	"TestPlantedHangs":           4 * time.Minute,
	"TestRacingLaunches":         3 * time.Minute,
	"TestTorchrunOnPlantedHangs": 7 * time.Minute, // it listens to torchrun for a minute each
	"TestFolder":                 2 * time.Minute, // it builds eight programs
}

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
			name := string(found[1])
			long = append(long, part{name: "test " + pkg + " " + name, expected: cmp.Or(slowTests[name], time.Minute), alone: true,
				commands: [][]string{{"go", "test", "-tags", "long", "-count=1", "-run", "^" + name + "$", pkg}}})
		}
		return nil
	})
	return fuzz, long, err
}
