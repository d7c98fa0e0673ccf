package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// module holds the files of a small module whose tests have all possible
// results.
var module = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.24\n",
	"good/good_test.go": `package good
import "testing"
func TestFine(t *testing.T) { t.Log("not shown") }
`,
	"idle/idle.go": "package idle\n",
	"busy/busy_test.go": `package busy
import ("os/exec"; "testing")
func TestShell(t *testing.T) { exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run() }
`,
	"skips/skips_test.go": `package skips
import "testing"
func TestWhole(t *testing.T) { t.Log("first"); t.Skip("needs root: really") }
func TestPart(t *testing.T) { t.Run("a", func(t *testing.T) { t.SkipNow() }); t.Run("b", func(*testing.T) {}) }
`,
	"bad/bad_test.go": `package bad
import "testing"
func TestBad(t *testing.T) { t.Error("the complaint") }
`,
	"crash/crash_test.go": `package crash
import "testing"
func TestCrash(t *testing.T) { panic("the crash") }
`,
	"part/part_test.go": `package part
import "testing"
func TestPart(t *testing.T) { t.Run("a", func(t *testing.T) { t.Error("a part's complaint") }) }
`,
	"exits/exits_test.go": `package exits
import ("fmt"; "os"; "testing")
func TestExits(t *testing.T) { fmt.Println("gone"); os.Exit(3) }
`,
	"main/main_test.go": `package main
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { fmt.Println("no tests today"); os.Exit(1) }
`,
	"many/many_test.go": `package many
import "testing"
func TestA(t *testing.T) { t.Fail() }
func TestB(t *testing.T) { t.Fail() }
func TestC(t *testing.T) { t.Fail() }
func TestD(t *testing.T) { t.Fail() }
`,
	"broken/broken_test.go": "package broken\nvar X = undeclared\n",
}

// testModule writes the small module and makes it the working directory.
func testModule(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range module {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"GOFLAGS": "-ldflags=-s", "GOWORK": "off", "CGO_ENABLED": "0"} {
		t.Setenv(name, value)
	}
}

// events runs the packages' tests and returns what go test prints, one line for each event.
func events(t *testing.T, packages ...string) (string, error) {
	t.Helper()
	testModule(t)
	out, err := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-p=1"}, packages...)...).Output()
	return string(out), err
}

// reported returns the output and the outcome that report makes of the given
// events.
func reported(t *testing.T, events string) (string, outcome) {
	t.Helper()
	var out strings.Builder
	o, err := report(strings.NewReader(events), &out, func(event) {})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), o
}

func TestReport(t *testing.T) {
	printed, err := events(t, "./good", "./idle", "./skips")
	out, o := reported(t, printed)
	const skipped = "[example.org/m/skips.TestWhole: needs root: really example.org/m/skips.TestPart/a]"
	if err != nil || o.passed != 2 || fmt.Sprint(o.skipped) != skipped || !regexp.MustCompile(`^ok  \texample.org/m/good\t.*\nok  \t.*skips\t.*\n$`).MatchString(out) {
		t.Errorf("%v, %+v, printed %q", err, o, out)
	}
	if _, err := report(strings.NewReader("{\"Action\":\"start\"}\nnonsense"), &strings.Builder{}, func(event) {}); err == nil {
		t.Error("nonsense is taken for a report")
	}
}

// The outcome must distinguish failures that may be retried from others. Cases
// that differ only in names or messages reuse the events of another case, with
// some texts replaced.
func TestReportShowsFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests")
	}
	printed, err := events(t, "./bad", "./part", "./crash", "./exits", "./broken", "./main", "./many")
	if err == nil {
		t.Fatal("go test is content")
	}
	const complaint = "the complaint"
	for _, test := range []struct {
		pkg, want, final string
		other            []string // pairs of texts to replace in the events: old, new, ...
	}{
		{"bad", complaint, "", nil},
		{"part", "a part's complaint", "", nil},
		{"crash", "panic: the crash", "a crash", nil},
		{"exits", "gone", "a crash", nil},
		{"broken", "undefined: undeclared", "does not build", nil},
		{"main", "no tests today", "no test of it", nil},
		{"bad", "processes are left", "a process is left over", []string{complaint, "host h1: processes are left: [sleep]"}},
		{"bad", "not the same", "a test about equal bits", []string{complaint, "not the same", "TestBad", "TestSameBits"}},
		{"part", "want digest step=1", "other bits", []string{"a part's complaint", `got digest step=1 sha256=0\nwant digest step=1 sha256=1`}},
		{"bad", "DATA RACE", "a data race", []string{complaint, `==================\nWARNING: DATA RACE`}},
		{"bad", "race detected", "a data race", []string{complaint, "race detected during execution of test"}},
		{"many", "--- FAIL: TestD", "more than 3", nil},
	} {
		var ofPackage strings.Builder
		for line := range strings.Lines(printed) {
			if regexp.MustCompile(`"example\.org/m/` + test.pkg + `[ "]`).MatchString(line) {
				ofPackage.WriteString(strings.NewReplacer(test.other...).Replace(line))
			}
		}
		out, o := reported(t, ofPackage.String())
		if strings.Count(out, test.want) != 1 || !strings.Contains(out, "FAIL\t") {
			t.Errorf("%s: printed %q, want %q in it once", test.pkg, out, test.want)
		}
		if final := o.final(); !strings.Contains(final, test.final) || (final == "") != (test.final == "") {
			t.Errorf("%s: final because of %q, want %q; %+v", test.pkg, final, test.final, o)
		}
	}
}

// Failed tests must be retried one by one, after all others have ended.
func TestFailedTestsAreRetriedOnce(t *testing.T) {
	bad := errors.New("exit status 1")
	first := outcome{skipped: []string{"p.TestS"}, failed: []failure{{"p", "TestA", ""}, {"q", "TestB", ""}}}
	for _, test := range []struct {
		name  string
		first outcome
		again map[string]error // by package
		none  bool             // nothing runs again
		fails bool
		calls int
		flaky int
	}{
		{name: "pass", first: first, calls: 3, flaky: 2},
		{name: "one fails twice", first: first, again: map[string]error{"q": bad}, fails: true, calls: 3, flaky: 1},
		{name: "there is no such test", first: first, none: true, fails: true, calls: 2},
		{name: "final", first: outcome{failed: []failure{{"p", "TestA", "a crash"}}}, fails: true, calls: 1},
		{name: "nothing failed that has a name", fails: true, calls: 1},
	} {
		var calls [][]string
		skipped, flaky, err := runAndRepeat(func(args ...string) (outcome, error) {
			calls = append(calls, args)
			if len(calls) == 1 {
				return test.first, bad
			}
			o := outcome{passed: 1}
			if test.none {
				o.passed = 0
			}
			return o, test.again[args[len(args)-1]]
		}, []string{"-tags=long", "-run=TestA|TestB", "./..."})
		if (err != nil) != test.fails || len(calls) != test.calls || len(flaky) != test.flaky || len(skipped) != len(test.first.skipped) {
			t.Errorf("%s: %v, calls %q, flaky %v, skipped %v", test.name, err, calls, flaky, skipped)
		}
		if len(calls) > 1 && strings.Join(calls[1], " ") != "-tags=long -run=^TestA$ p" {
			t.Errorf("%s: repeated by %q", test.name, calls[1])
		}
	}
}

// A skipped test must fail the run with CI=true, and only then.
func TestSkippedTestFailsInCI(t *testing.T) {
	testModule(t)
	if err := run([]string{"./skips"}, false); err != nil {
		t.Error(err)
	}
	if err := run([]string{"./skips"}, true); err == nil || !strings.HasPrefix(err.Error(), "2 tests were skipped") {
		t.Error(err)
	}
}
