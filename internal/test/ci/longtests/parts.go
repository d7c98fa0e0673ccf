package main

import (
	"fmt"
	"io/fs"
	"maps"
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
	fuzzTime   = 5 * time.Second // with its compilation
)

// e2eParts is into how many parts the long tests of package e2e are dealt. Each part
// takes less than an hour.
const e2eParts = 4

// parts returns all parts: first what fails soonest, the grid at the end.
func parts(root string) ([]part, error) {
	fuzz, long, err := scan(root)
	if err != nil {
		return nil, err
	}
	all := []part{
		{name: "go install", expected: 3 * time.Minute, alone: true, commands: [][]string{{"scripts/install-from-source"}}},
		{name: "other systems", expected: 5 * time.Minute, alone: true, commands: [][]string{{"scripts/build-for", "linux", "arm64"}, {"scripts/build-for", "darwin", "arm64"}, {"scripts/test-arm64"}}},
		fuzz,
		{name: "costs", expected: 20 * time.Minute, alone: true, commands: [][]string{{"go", "run", "./internal/test/ci/runtests", "-p=1", "-parallel=1", "./..."}}},
		{name: "packages", expected: 15 * time.Minute, alone: true, commands: long.commands(func(pkg string) bool { return pkg != "./e2e" })},
	}
	for i, tests := range long.deal("./e2e", e2eParts) {
		all = append(all, part{name: fmt.Sprintf("e2e %d/%d", i+1, e2eParts), expected: 20 * time.Minute, alone: true,
			commands: [][]string{longCommand("./e2e", tests)}})
	}
	all = append(all, part{name: "one point of the benchmark", expected: 4 * time.Minute, alone: true, commands: [][]string{
		{"go", "run", "./internal/tools/bench/sparse", "--hosts", "8", "--rates", "100mbit", "--rounds", "1", "--only", "hybrid", "--out", filepath.Join(os.TempDir(), "plx-bench")}}})
	for i := range gridParts {
		name := fmt.Sprintf("%d/%d", i+1, gridParts)
		out := filepath.Join(os.TempDir(), "plx-grid", fmt.Sprint(i+1))
		all = append(all, part{name: "fault grid " + name, expected: 10 * time.Minute, commands: [][]string{
			{"go", "run", "./internal/test/chaos", "--part", name, "--out", out, "--logs", filepath.Join(out, "logs")}}})
	}
	return all, nil
}

// longTests are the names of the tests in files that make test leaves out, by package.
type longTests map[string][]string

// commands returns a command for each package that is wanted. The race detector would make
// arithmetic many times slower; make test has it, with fewer numbers.
func (l longTests) commands(wanted func(pkg string) bool) (commands [][]string) {
	for _, pkg := range slices.Sorted(maps.Keys(l)) {
		if wanted(pkg) {
			commands = append(commands, longCommand(pkg, l[pkg], "-race=false"))
		}
	}
	return commands
}

// deal deals the tests of a package out in turn, so that neighbours, which are of one
// kind and length, go to different parts.
func (l longTests) deal(pkg string, n int) [][]string {
	hands := make([][]string, n)
	for i, test := range l[pkg] {
		hands[i%n] = append(hands[i%n], test)
	}
	return hands
}

func longCommand(pkg string, tests []string, flags ...string) []string {
	words := append([]string{"go", "run", "./internal/test/ci/runtests", "-tags=long", "-run=^(" + strings.Join(tests, "|") + ")$"}, flags...)
	return append(words, pkg)
}

var (
	fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	longFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)
	// The gate leaves out what has the build tag long or !race.
	leftOut = regexp.MustCompile(`(?m)^//go:build (long$|.*!race\b)`)
)

// scan reads the module's test files. It returns a part with all fuzz targets, and the
// tests in files that make test leaves out.
func scan(root string) (fuzz part, long longTests, err error) {
	fuzz, long = part{name: "fuzz", alone: true}, longTests{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := "./" + filepath.ToSlash(dir)
		for _, found := range fuzzFunc.FindAllSubmatch(text, -1) {
			fuzz.expected += fuzzTime
			fuzz.commands = append(fuzz.commands, []string{"go", "test", "-run", "^$", "-fuzz", "^" + string(found[1]) + "$", "-fuzztime", fuzzInputs, pkg})
		}
		if leftOut.Match(text) {
			for _, found := range longFunc.FindAllSubmatch(text, -1) {
				long[pkg] = append(long[pkg], string(found[1]))
			}
		}
		return nil
	})
	return fuzz, long, err
}
