//go:build long

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// TestBenchSparse runs the benchmark of docs/benchmarks.md at a size at which
// its numbers say nothing: every system must train on two hosts, and the
// document's tables must come out whole.
func TestBenchSparse(t *testing.T) {
	needTorch(t)
	needHosts(t)
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, testhosts.Binary(t, "github.com/plx-run/plx/internal/bench/sparse"), "--quick", "--out", out,
		"--plx", testhosts.Binary(t, "github.com/plx-run/plx"), "--lm", testhosts.Binary(t, "github.com/plx-run/plx/examples/lm"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, clip(stderr.String()))
	}
	t.Logf("five systems on two hosts: %.1f s", time.Since(begun).Seconds())
	var all struct {
		Runs []struct {
			System string
			Hosts  int
			Words  float64
			Millis []float64
		}
		Raw []struct{ One, There, Back float64 }
	}
	text, err := os.ReadFile(filepath.Join(out, "benchmarks", "sparse.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Runs) != 5 || len(all.Raw) != 1 {
		t.Fatalf("%d runs, %d links, want 5 and 1\n%s", len(all.Runs), len(all.Raw), text)
	}
	for _, r := range all.Runs {
		if r.Hosts != 2 || len(r.Millis) < 3 || !(r.Words > 0) {
			t.Errorf("%+v has not been measured", r)
		}
	}
	if raw := all.Raw[0]; raw.One < 1e6 || raw.One > 1.3e8 || raw.There < 1e6 || raw.Back < 1e6 {
		t.Errorf("a link of 1 Gbit/s carries %+v", raw)
	}
	page, err := os.ReadFile(filepath.Join(out, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	wholeTables(t, string(page), "| 2 |")
	if picture, err := os.ReadFile(filepath.Join(out, "benchmarks", "sparse-1gbit.svg")); err != nil || !bytes.Contains(picture, []byte("</svg>")) {
		t.Errorf("the plot: %v: %s", err, picture)
	}
}

// wholeTables wants all rows of a table to have as many cells, numbers in
// them, and a table with a row that begins as given.
func wholeTables(t *testing.T, page, row string) {
	t.Helper()
	cells, rows := 0, 0
	for line := range strings.Lines(page) {
		n := strings.Count(line, "|")
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		if cells != 0 && n != cells {
			t.Errorf("%d cells, above it %d: %s", n, cells, line)
		}
		if cells = n; strings.HasPrefix(line, row) {
			rows++
		}
	}
	if rows < 6 { // one of words per second, one of each system
		t.Errorf("%d rows begin with %q", rows, row)
	}
	for _, wrong := range []string{"NaN", "Inf", "failed", "%!"} {
		if strings.Contains(page, wrong) {
			t.Errorf("the page says %q:\n%s", wrong, page)
		}
	}
}

// needHosts skips a test where there can be no test hosts, as package
// testhosts does by itself for those who start a cluster of their own.
func needHosts(t *testing.T) {
	t.Helper()
	if err := testhosts.Available(); err != nil {
		skip(t, err.Error())
	}
}
