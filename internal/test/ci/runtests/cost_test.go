package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// As go test -exec does, a test of the meter starts this program to enter a group.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == enterArg {
		main()
	}
	os.Exit(m.Run())
}

// A package's group counts what its processes take, and nothing else.
func TestMeterCountsProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups")
	}
	m := newMeter()
	defer m.remove()
	if m.root == "" {
		t.Fatal("no group can be made")
	}
	dir := t.TempDir()
	run := func(line string) time.Duration {
		cmd := exec.Command(os.Args[0], enterArg, m.root, "/bin/sh", "-c", line)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		took, err := usage(groupOf(m.root, dir))
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	idle := run("true")
	if busy := run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"); busy < idle+10*time.Millisecond {
		t.Errorf("%v before and %v after a loop", idle, busy)
	}
}

// The time between two events of a package goes to the tests that ran, in equal shares.
func TestCostsAreShared(t *testing.T) {
	spent := time.Duration(0)
	c := newCosts(func(string) time.Duration { return spent })
	for _, s := range []struct {
		after        time.Duration
		action, test string
	}{
		{0, "start", ""},
		{1, "run", "TestA"}, // 1 s before any test
		{2, "run", "TestA/sub"},
		{3, "pass", "TestA/sub"},
		{0, "pause", "TestA"}, // 5 s of TestA
		{0, "run", "TestB"},
		{2, "cont", "TestA"},    // 2 s of TestB
		{8, "run", "TestB/sub"}, // 4 s of each
		{0, "pause", "TestB/sub"},
		{0, "pass", "TestA"},
		{4, "cont", "TestB/sub"}, // nobody runs: TestB waits for its subtest
		{1, "pass", "TestB/sub"},
		{0, "pass", "TestB"},
		{0, "pass", ""},
	} {
		spent += s.after * time.Second
		c.take(event{Package: "p", Action: s.action, Test: s.test})
	}
	p := c.packages["p"]
	if p.total != 21*time.Second || p.tests["TestA"] != 9*time.Second || p.tests["TestB"] != 7*time.Second || p.tests[""] != 5*time.Second {
		t.Errorf("in all %v, by test %v", p.total, p.tests)
	}
	var out strings.Builder
	if err := c.check(&out, false); err != nil || strings.Count(out.String(), "dear: p Test") != 2 {
		t.Errorf("%v, printed %q", err, out.String())
	}
	if err := c.check(&out, true); err == nil || !strings.Contains(err.Error(), "p TestA took 9.0 ") {
		t.Errorf("each alone: %v", err)
	}
	c.print(&out)
	if !strings.Contains(out.String(), "21.0 s  p ") {
		t.Errorf("printed %q", out.String())
	}
}
