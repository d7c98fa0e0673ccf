package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A package's control group must count the CPU time of all its processes, and
// must be removed at the end.
func TestProcessesAreCounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups")
	}
	testModule(t)
	c, err := newCosts()
	if err != nil || c.groups == "" || c.module != "example.org/m" {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := test(append(slices.Clone(goFlags), append(c.flags(), "./busy")...), c); err != nil {
		t.Error(err)
	}
	if busy := c.packages["example.org/m/busy"]; busy == nil || busy.tests["TestShell"] < 10*time.Millisecond || busy.total < busy.tests["TestShell"] {
		t.Errorf("%+v", busy)
	}
	if c.remove(); usage(c.groups) >= 0 {
		t.Errorf("%s is left", c.groups)
	}
}

// The CPU time between two events of a package must be divided equally among
// the tests that ran.
func TestParallelTestsShareCPUTime(t *testing.T) {
	t.Chdir(t.TempDir())
	spent := time.Duration(0)
	c := &costs{groups: "some", usage: func(string) time.Duration { return spent }, packages: map[string]*cost{}}
	for _, s := range []struct {
		after        time.Duration
		action, test string
	}{
		{0, "start", ""},
		{1, "run", "TestA"}, // 1 s passed before any test ran
		{2, "run", "TestA/sub"},
		{3, "pass", "TestA/sub"},
		{0, "pause", "TestA"}, // 5 s of TestA
		{0, "run", "TestB"},
		{2, "cont", "TestA"},    // 2 s of TestB
		{8, "run", "TestB/sub"}, // 4 s of each
		{0, "pause", "TestB/sub"},
		{0, "pass", "TestA"},
		{4, "cont", "TestB/sub"}, // no test was running before, because TestB waits for its subtest
		{1, "pass", "TestB/sub"},
		{0, "pass", "TestB"},
		{0, "pass", ""},
	} {
		spent += s.after * time.Second
		c.take(event{Package: "p", Action: s.action, Test: s.test})
	}
	var out strings.Builder
	if err := c.tell(&out, nil); err != nil || strings.Count(out.String(), "dear: p Test") != 2 || !strings.Contains(out.String(), "21.0 s  p\n") {
		t.Errorf("%v, printed %q", err, &out)
	}
	if table, err := os.ReadFile("build/test-costs.tsv"); err != nil || string(table) != "9.00\tp\tTestA\n7.00\tp\tTestB\n5.00\tp\t-\n" {
		t.Errorf("%v, wrote %q", err, table)
	}
	if err := c.tell(&out, []string{"-parallel=1"}); err == nil || !strings.Contains(err.Error(), "p TestA took 9.0 ") {
		t.Errorf("each alone: %v", err)
	}
	if err := c.tell(&out, []string{"-parallel=1", "-tags=long"}); err != nil {
		t.Errorf("long tests: %v", err)
	}
}
