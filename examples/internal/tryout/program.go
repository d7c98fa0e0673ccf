package tryout

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Program is an example as its users build it.
type Program struct{ path string }

// Build builds the program of the test's own package. Under the race detector the
// test itself would train ten times as long.
func Build(t *testing.T) Program {
	t.Helper()
	p := Program{filepath.Join(t.TempDir(), "program")}
	c := exec.Command("go", "build", "-o", p.path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return p
}

// Run runs the program alone and returns what it prints.
func (p Program) Run(t *testing.T, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, p.path, arguments...)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PLX_LOG_LEVEL=error")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// Numbers returns the numbers of a program's lines that stand where pattern has a
// group, at least one.
func Numbers(t *testing.T, pattern, out string) (found []float64) {
	t.Helper()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(out, -1) {
		x, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, x)
	}
	if len(found) == 0 {
		t.Fatalf("no %q in\n%s", pattern, out)
	}
	return found
}
