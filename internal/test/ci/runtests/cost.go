package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// costs is the processor time that the packages and tests of a run have taken, with all
// processes that they start, also on test hosts: the tests of a package run in a control
// group of their own. Wall time misleads, since packages compete for the processors.
//
// A test that took more than its share is named, and fails the run if its tests ran one
// after the other (-parallel=1), each with all processors. Each test's time is in
// build/test-costs.tsv.
type costs struct {
	module, folder string                         // of the tests
	groups         string                         // a folder with a group for each package; "" if nobody but root may make groups here
	usage          func(pkg string) time.Duration // of a package until now
	packages       map[string]*cost
}

// cost is what one package has taken.
type cost struct {
	total time.Duration
	tests map[string]time.Duration // top-level tests; "" is what no test was running for
	live  map[string]bool          // tests and subtests that have not ended; false while one is paused
}

// newCosts makes a group for a run. Without root it measures nothing.
func newCosts() (*costs, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("ask go for the module: %w", err)
	}
	c := &costs{packages: map[string]*cost{}}
	c.usage = func(pkg string) time.Duration { return usage(c.group(pkg)) }
	c.module, c.folder, _ = strings.Cut(strings.TrimSpace(string(module)), "\t")
	for _, hierarchy := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"} {
		root := filepath.Join(hierarchy, "plx-tests-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(root, 0o755) != nil {
			continue
		}
		if usage(root) >= 0 {
			c.groups = root
			break
		}
		os.Remove(root) // it is empty
	}
	return c, nil
}

// flags make go test start each test program in the group of the folder that it is in.
func (c *costs) flags() []string {
	if c.groups == "" {
		return nil
	}
	return []string{`-exec=sh -c 'group="$0/$(pwd | tr / -)" && mkdir -p "$group" && echo 0 >"$group/cgroup.procs" && exec "$@"' ` + c.groups}
}

// group is that of a package.
func (c *costs) group(pkg string) string {
	return filepath.Join(c.groups, strings.ReplaceAll(c.folder+strings.TrimPrefix(pkg, c.module), "/", "-"))
}

// remove removes the groups. One in which a process is left stays.
func (c *costs) remove() {
	if c.groups == "" {
		return
	}
	for pkg := range c.packages {
		os.Remove(c.group(pkg)) // a package without tests has none
	}
	os.Remove(c.groups) // one with groups stays too
}

// usage is the processor time of a group and those below it: cpuacct.usage in nanoseconds,
// or usage_usec of cpu.stat in the unified hierarchy. It is -1 if there is no such group.
func usage(group string) time.Duration {
	unit, text := time.Nanosecond, ""
	if v1, err := os.ReadFile(filepath.Join(group, "cpuacct.usage")); err == nil {
		text = string(v1)
	} else if v2, err := os.ReadFile(filepath.Join(group, "cpu.stat")); err == nil {
		unit, text = time.Microsecond, strings.TrimPrefix(string(v2), "usage_usec ")
	}
	first, _, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return -1
	}
	return time.Duration(n) * unit
}

// take attributes the time since the package's last event to the tests that ran since
// then, in equal shares: of tests that run in parallel it knows no better.
func (c *costs) take(e event) {
	if e.Package == "" || e.Action == "output" {
		return
	}
	p := c.packages[e.Package]
	if p == nil {
		p = &cost{tests: map[string]time.Duration{}, live: map[string]bool{}}
		c.packages[e.Package] = p
	}
	now := max(0, c.usage(e.Package)) // nothing has run yet
	spent := now - p.total
	p.total = now
	running := p.running()
	for _, test := range running {
		p.tests[test] += spent / time.Duration(len(running))
	}
	switch e.Action {
	case "run", "cont", "pause":
		p.live[e.Test] = e.Action != "pause"
		if e.Action == "run" && !strings.Contains(e.Test, "/") {
			p.tests[e.Test] = 0 // it may be a repetition
		}
	default: // pass, fail, skip
		delete(p.live, e.Test)
	}
}

// running returns the top-level tests that run, or "". A test with subtests waits for them,
// and if all of these are paused it waits for its turn.
func (p *cost) running() (tests []string) {
	for name, runs := range p.live {
		below := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		top, _, _ := strings.Cut(name, "/")
		if runs && !slices.ContainsFunc(slices.Collect(maps.Keys(p.live)), below) && !slices.Contains(tests, top) {
			tests = append(tests, top)
		}
	}
	if len(tests) == 0 {
		return []string{""}
	}
	return tests
}

// mostOfTest is what a test may take; more is for a long test.
const mostOfTest = 5 * time.Second

// dear are the tests that may take more than mostOfTest, and why.
var dear = map[string]string{
	"/e2e TestREADME":                         "runs all commands of README.md, which train with plx and with PyTorch",
	"/e2e TestTorch":                          "imports PyTorch five times, 1.2 s each",
	"/examples TestMistakesEndThePrograms":    "links five programs, which other tests of the package run too",
	"/launcher/artifacts TestAgentFromSource": "compiles plx, as a launcher does for another system",
	" TestCompletionInShells":                 "starts plx for each completion in three shells",
	"/bench/sparse TestSameModel":             "trains a model with examples/lm, which it builds, and with PyTorch",
}

// tell prints the ten packages that took most, and which tests took too much, and writes
// each test's time: processor seconds, package, test. It returns an error for a test that
// took too much if each ran alone; else the figure is a share of what several took, with
// what they compiled if caches were empty.
func (c *costs) tell(out io.Writer, args []string) (err error) {
	if c.groups == "" {
		fmt.Fprintln(out, "processor time was not measured: only root may make control groups")
		return nil
	}
	type row struct {
		pkg, test string
		took      time.Duration
	}
	var packages, tests []row
	var all time.Duration
	for pkg, p := range c.packages {
		all += p.total
		packages = append(packages, row{pkg, "", p.total})
		for test, took := range p.tests {
			tests = append(tests, row{pkg, test, took})
		}
	}
	dearest := func(a, b row) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.pkg+a.test, b.pkg+b.test))
	}
	slices.SortFunc(packages, dearest)
	slices.SortFunc(tests, dearest)
	fmt.Fprintf(out, "tests took %.0f processor seconds; the packages that took most:\n", all.Seconds())
	for _, p := range packages[:min(10, len(packages))] {
		fmt.Fprintf(out, "%7.1f s  %s\n", p.took.Seconds(), p.pkg)
	}
	var table strings.Builder
	for _, r := range tests {
		fmt.Fprintf(&table, "%.2f\t%s\t%s\n", r.took.Seconds(), r.pkg, cmp.Or(r.test, "-"))
		name := strings.TrimPrefix(r.pkg, c.module) + " " + r.test
		if r.took < mostOfTest || r.test == "" || dear[name] != "" || slices.Contains(args, "-tags=long") { // a long test may take what it needs
			continue
		}
		fmt.Fprintf(out, "dear: %s %s took %.1f processor seconds, more than %.0f: if it does so alone, make it smaller or a long test\n", r.pkg, r.test, r.took.Seconds(), mostOfTest.Seconds())
		if slices.Contains(args, "-parallel=1") {
			err = cmp.Or(err, fmt.Errorf("%s %s took %.1f processor seconds, and a test may take %.0f", r.pkg, r.test, r.took.Seconds(), mostOfTest.Seconds()))
		}
	}
	return errors.Join(err, os.MkdirAll("build", 0o755), os.WriteFile("build/test-costs.tsv", []byte(table.String()), 0o644))
}
