package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A meter counts the processor time of each package's tests, with all processes that
// they start, also on test hosts: the tests of a package run in a control group of
// their own. Wall time misleads, since packages compete for the processors.
type meter struct {
	root string // the groups of this run; "" if nobody but root may make groups here
}

// newMeter makes a group for a run. Without root it measures nothing.
func newMeter() meter {
	for _, hierarchy := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"} {
		root := filepath.Join(hierarchy, "plx-tests-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(root, 0o755) != nil {
			continue
		}
		if m := (meter{root}); m.works() {
			return m
		}
		os.Remove(root) // it is empty
	}
	return meter{}
}

func (m meter) works() bool {
	_, err := usage(m.root)
	return err == nil
}

// flags make go test start each test program in its package's group.
func (m meter) flags() []string {
	self, err := os.Executable()
	if m.root == "" || err != nil {
		return nil
	}
	return []string{"-exec=" + self + " " + enterArg + " " + m.root}
}

// enterArg makes runtests a program that starts another in a group.
const enterArg = "-enter"

// enter moves this process into the group of the package whose folder it is in, and
// becomes the test program.
func enter(root string, program []string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	group := groupOf(root, dir)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	return syscall.Exec(program[0], program, os.Environ())
}

// groupOf is the group of a package, by its folder.
func groupOf(root, dir string) string {
	return filepath.Join(root, strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-"))
}

// of is the processor time that a package of the module in the current folder has taken.
func (m meter) of(pkg string) time.Duration {
	dir, err := os.Getwd()
	if m.root == "" || err != nil {
		return 0
	}
	took, _ := usage(groupOf(m.root, filepath.Join(dir, strings.TrimPrefix(pkg, modulePath())))) // none: nothing has run yet
	return took
}

func modulePath() string {
	built, _ := debug.ReadBuildInfo() // in every program that go builds in a module
	return built.Main.Path
}

// remove removes the groups. One in which a process is left stays.
func (m meter) remove() {
	if m.root == "" {
		return
	}
	groups, _ := os.ReadDir(m.root) // what is not listed stays
	for _, g := range groups {
		if g.IsDir() {
			os.Remove(filepath.Join(m.root, g.Name())) // it stays if a process is left
		}
	}
	os.Remove(m.root) // likewise
}

// usage is the processor time of a group and those below it: cpuacct.usage in
// nanoseconds, or usage_usec of cpu.stat in the unified hierarchy.
func usage(group string) (time.Duration, error) {
	if text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage")); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(n), err
	}
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "usage_usec ")
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(digits, 10, 64)
	return time.Duration(n) * time.Microsecond, err
}

// costs is what the packages and tests of a run have taken.
type costs struct {
	usage    func(pkg string) time.Duration // of a package's group until now
	packages map[string]*cost
}

func newCosts(usage func(pkg string) time.Duration) *costs {
	return &costs{usage, map[string]*cost{}}
}

// cost is what one package has taken.
type cost struct {
	begun time.Time
	wall  time.Duration
	total time.Duration
	tests map[string]time.Duration // top-level tests; "" is what no test was running for
	live  map[string]bool          // tests and subtests that have not ended; false while one is paused
}

// take attributes the time since the package's last event to the tests that ran since
// then, in equal shares: of tests that run in parallel it knows no better.
func (c *costs) take(e event) {
	if e.Package == "" || e.Action == "output" {
		return
	}
	if c.packages[e.Package] == nil {
		c.packages[e.Package] = &cost{begun: e.Time, tests: map[string]time.Duration{}, live: map[string]bool{}}
	}
	p := c.packages[e.Package]
	now := c.usage(e.Package)
	spent := now - p.total
	p.total = now
	running := p.running()
	for _, test := range running {
		p.tests[test] += spent / time.Duration(len(running))
	}
	if len(running) == 0 {
		p.tests[""] += spent
	}
	switch {
	case e.Test == "":
		p.wall = e.Time.Sub(p.begun)
	case e.Action == "run" || e.Action == "cont":
		p.live[e.Test] = true
		if e.Action == "run" && !strings.Contains(e.Test, "/") {
			p.tests[e.Test] = 0 // it may be a repetition
		}
	case e.Action == "pause":
		p.live[e.Test] = false
	default: // pass, fail, skip
		delete(p.live, e.Test)
	}
}

// running returns the top-level tests that run. One whose subtests are all paused waits
// for its turn.
func (p *cost) running() (tests []string) {
	for name, runs := range p.live {
		below := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		top, _, _ := strings.Cut(name, "/")
		if runs && !slices.ContainsFunc(slices.Collect(maps.Keys(p.live)), below) && !slices.Contains(tests, top) {
			tests = append(tests, top)
		}
	}
	return tests
}

// mostOfTest is what a test may take; more is for a long test.
const mostOfTest = 5 * time.Second

// dear are the tests that may take more than mostOfTest, and why.
var dear = map[string]string{
	"e2e TestREADME":                                "runs all commands of README.md, which train with plx and with PyTorch",
	"e2e TestTorch":                                 "imports PyTorch five times, 1.2 s each",
	"examples TestMistakesEndThePrograms":           "links five programs, which other tests of the package run too",
	"launcher/artifacts TestAgentFromSource":        "compiles plx, as a launcher does for another system",
	"github.com/plx-run/plx TestCompletionInShells": "starts plx for each completion in three shells",
}

// check prints which tests took too much. If each ran alone it returns an error then; else
// the figure is a share of what several took, with what they compiled if caches were empty.
func (c *costs) check(out io.Writer, alone bool) (err error) {
	for _, r := range c.rows() {
		name := strings.TrimPrefix(r.pkg, modulePath()+"/") + " " + r.test
		if r.took < mostOfTest || r.test == "" || dear[name] != "" {
			continue
		}
		fmt.Fprintf(out, "dear: %s took %.1f processor seconds, more than %.0f: if it does so alone, make it smaller or a long test\n", name, r.took.Seconds(), mostOfTest.Seconds())
		if alone && err == nil {
			err = fmt.Errorf("%s took %.1f processor seconds, and a test may take %.0f", name, r.took.Seconds(), mostOfTest.Seconds())
		}
	}
	return err
}

// print names the ten packages that took most.
func (c *costs) print(out io.Writer) {
	names := make([]string, 0, len(c.packages))
	var all time.Duration
	for name, p := range c.packages {
		names = append(names, name)
		all += p.total
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(c.packages[b].total, c.packages[a].total) })
	fmt.Fprintf(out, "tests took %.0f processor seconds; the packages that took most:\n", all.Seconds())
	for _, name := range names[:min(10, len(names))] {
		fmt.Fprintf(out, "%7.1f s  %s (%.0f s to its end)\n", c.packages[name].total.Seconds(), name, c.packages[name].wall.Seconds())
	}
}

// row is one test of a package, or what was spent while none of its tests ran.
type row struct {
	pkg, test string
	took      time.Duration
}

// rows returns all tests, the dearest first.
func (c *costs) rows() (rows []row) {
	for name, p := range c.packages {
		for test, took := range p.tests {
			rows = append(rows, row{name, test, took})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.pkg+a.test, b.pkg+b.test))
	})
	return rows
}

// write writes every test's cost to a file: processor seconds, package, test.
func (c *costs) write(path string) error {
	var text strings.Builder
	for _, r := range c.rows() {
		fmt.Fprintf(&text, "%.2f\t%s\t%s\n", r.took.Seconds(), r.pkg, cmp.Or(r.test, "-"))
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text.String()), 0o644))
}
