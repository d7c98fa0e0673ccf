package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a small module whose tests do all that tests can.
var module = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.24\n",
	"good/good_test.go": `package good
import "testing"
func TestFine(t *testing.T) { t.Log("not shown") }
`,
	"idle/idle.go": "package idle\n",
	"skips/skips_test.go": `package skips
import "testing"
func TestWhole(t *testing.T) { t.Skip("needs root: really") }
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
	"broken/broken_test.go": "package broken\nvar X = undeclared\n",
}

// runIn runs the packages' tests as run does and returns what it printed.
func runIn(t *testing.T, packages ...string) (string, []skip, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	events, runErr := cmd.Output()
	var out strings.Builder
	skipped, err := report(strings.NewReader(string(events)), &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), skipped, runErr
}

func TestReportIsWhatGoTestPrints(t *testing.T) {
	out, skipped, err := runIn(t, "./good", "./idle")
	if err != nil || len(skipped) != 0 || !strings.HasPrefix(out, "ok  \texample.org/m/good\t") || strings.Count(out, "\n") != 1 {
		t.Errorf("%v, skipped %v, printed %q", err, skipped, out)
	}
}

func TestReportNamesSkips(t *testing.T) {
	out, skipped, err := runIn(t, "./skips")
	want := "[example.org/m/skips.TestWhole: needs root: really example.org/m/skips.TestPart/a]"
	if err != nil || fmt.Sprint(skipped) != want || !strings.HasPrefix(out, "ok  \t") {
		t.Errorf("%v, skipped %v, want %v, printed %q", err, skipped, want, out)
	}
}

func TestReportShowsFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests")
	}
	for _, test := range []struct{ pkg, want string }{
		{"./bad", "the complaint"},
		{"./crash", "panic: the crash"},
		{"./broken", "undefined: undeclared"},
	} {
		out, _, err := runIn(t, test.pkg)
		if err == nil || !strings.Contains(out, test.want) || !strings.Contains(out, "FAIL\t") {
			t.Errorf("%s: %v, printed %q, want %q in it", test.pkg, err, out, test.want)
		}
	}
}

func TestReportRefusesWhatIsNoReport(t *testing.T) {
	if _, err := report(strings.NewReader("{\"Action\":\"start\"}\nnonsense"), &strings.Builder{}); err == nil {
		t.Error("nonsense is taken for a report")
	}
}

func TestVerdict(t *testing.T) {
	two := exec.Command("sh", "-c", "exit 2").Run()
	one := []skip{{test: "p.TestX"}}
	for _, test := range []struct {
		skipped []skip
		err     error
		strict  bool
		want    int
	}{
		{nil, nil, true, 0},
		{one, nil, false, 0},
		{one, nil, true, 1},
		{one, two, true, 2},
		{nil, errors.New("no go here"), false, 1},
	} {
		if got := verdict(test.skipped, test.err, test.strict); got != test.want {
			t.Errorf("verdict(%v, %v, %v) = %d, want %d", test.skipped, test.err, test.strict, got, test.want)
		}
	}
}
