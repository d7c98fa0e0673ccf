package tryout

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Main is an example's TestMain: it makes the test's own binary the program
// where Numbers asks it to be.
func Main(m *testing.M, main func()) {
	if os.Getenv("RUN_THE_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Numbers runs the program alone and returns the numbers of its lines that
// stand where pattern has a group.
func Numbers(t *testing.T, pattern string, arguments ...string) (found []float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], arguments...)
	c.Env = append(os.Environ(), "RUN_THE_PROGRAM=1", "OMP_NUM_THREADS=1", "PLX_LOG_LEVEL=error")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(out, -1) {
		x, err := strconv.ParseFloat(string(match[1]), 64)
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
