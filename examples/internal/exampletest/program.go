package exampletest

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

// Program is a built example.
type Program struct{ path string }

// Build builds the program of the test's own package. Training inside the test
// would take ten times as long under the race detector.
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

// Run runs the program alone and returns its output.
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

// Numbers returns the numbers that the group of pattern matches in a program's
// output. There must be at least one.
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
