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

// costs measures the CPU time of the packages and tests of a run. The time
// includes all processes that the tests start, on test hosts too: each
// package's tests run in their own control group. Wall time would be
// misleading, because packages compete for the CPUs.
//
// costs reports a test that takes too much CPU time. Such a test fails the run
// only if tests ran one after the other (-parallel=1), because only then is
// its CPU time exact. build/test-costs.tsv lists the time of each test.
type costs struct {
	module, folder string                         // path and folder of the tested Go module
	groups         string                         // folder with a control group for each package; "" if this user may not create control groups
	usage          func(pkg string) time.Duration // returns the CPU time that the tests of the package pkg have used so far
	packages       map[string]*cost
}

// cost is the CPU time of one package.
type cost struct {
	total time.Duration
	tests map[string]time.Duration // maps each top-level test to its CPU time; "" holds the time during which no test was running
	live  map[string]bool          // tests and subtests that have not ended; the value is false while a test is paused
}

// newCosts creates the control group of a run. If it cannot create the group,
// for example without root, costs measures nothing.
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
		os.Remove(root) // removes the new group, which is still empty
	}
	return c, nil
}

// flags returns flags for go test that start each test program in the control
// group of its package.
func (c *costs) flags() []string {
	if c.groups == "" {
		return nil
	}
	return []string{`-exec=sh -c 'group="$0/$(pwd | tr / -)" && mkdir -p "$group" && echo 0 >"$group/cgroup.procs" && exec "$@"' ` + c.groups}
}

// group returns the path of a package's control group.
func (c *costs) group(pkg string) string {
	return filepath.Join(c.groups, strings.ReplaceAll(c.folder+strings.TrimPrefix(pkg, c.module), "/", "-"))
}

// remove removes the control groups. A group that still has a process stays.
func (c *costs) remove() {
	if c.groups == "" {
		return
	}
	for pkg := range c.packages {
		os.Remove(c.group(pkg)) // fails for a package without tests, which has no group
	}
	os.Remove(c.groups) // fails if a package's group could not be removed
}

// usage returns the CPU time of a control group and its descendants. It reads
// cpuacct.usage (cgroup v1, in nanoseconds) or usage_usec of cpu.stat (cgroup
// v2). It returns -1 if there is no such group.
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

// take attributes the CPU time since the package's last event to the tests
// that ran since then. Tests that ran in parallel get equal shares, because
// their exact times are unknown.
func (c *costs) take(e event) {
	if e.Package == "" || e.Action == "output" {
		return
	}
	p := c.packages[e.Package]
	if p == nil {
		p = &cost{tests: map[string]time.Duration{}, live: map[string]bool{}}
		c.packages[e.Package] = p
	}
	now := max(0, c.usage(e.Package)) // usage returns -1 before the package has a control group
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
			p.tests[e.Test] = 0 // a test that is run a second time starts at 0 again
		}
	default: // the actions pass, fail and skip
		delete(p.live, e.Test)
	}
}

// running returns the names of the top-level tests that are running. If no
// test is running, it returns a list with the empty name. A test does not
// count while it only waits for its paused subtests.
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

// mostOfTest is the maximum CPU time of a test. Tests with the build tag long
// have no maximum.
const mostOfTest = 5 * time.Second

// dear maps each test that may take more CPU time than mostOfTest to the
// reason.
var dear = map[string]string{
	"/e2e TestREADME":                         "runs all commands of README.md, which train with plx and with PyTorch",
	"/e2e TestTorch":                          "imports PyTorch five times, 1.2 s each",
	"/examples TestMistakesEndThePrograms":    "links five programs, which other tests of the package run too",
	"/launcher/artifacts TestAgentFromSource": "compiles plx, as a launcher does for another system",
	" TestCompletionInShells":                 "starts plx for each completion in three shells",
	"/bench/sparse TestSameModel":             "trains a model with examples/lm, which it builds, and with PyTorch",
}

// tell prints the ten packages with the most CPU time and the tests that took
// too much. It writes the time of each test to build/test-costs.tsv. If tests
// ran one after the other (-parallel=1), tell returns an error for each test
// that took too much. If tests ran in parallel, the times are only estimates.
// They include compilation if the caches were empty.
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
		if r.took < mostOfTest || r.test == "" || dear[name] != "" || slices.Contains(args, "-tags=long") { // tests with the build tag long have no limit
			continue
		}
		fmt.Fprintf(out, "dear: %s %s took %.1f processor seconds, more than %.0f: if it does so alone, make it smaller or a long test\n", r.pkg, r.test, r.took.Seconds(), mostOfTest.Seconds())
		if slices.Contains(args, "-parallel=1") {
			err = cmp.Or(err, fmt.Errorf("%s %s took %.1f processor seconds, and a test may take %.0f", r.pkg, r.test, r.took.Seconds(), mostOfTest.Seconds()))
		}
	}
	return errors.Join(err, os.MkdirAll("build", 0o755), os.WriteFile("build/test-costs.tsv", []byte(table.String()), 0o644))
}
