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

	"github.com/plx-run/plx/internal/testhosts"
)

// TestFaultGrid tries a few cells of the grid behind docs/reliability.md: a run
// that meets a fault has the weights of one that does not. As the cells have
// deadlines it runs by itself.
func TestFaultGrid(t *testing.T) {
	needHosts(t)
	out, logs := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testhosts.Binary(t, "github.com/plx-run/plx/internal/faultgrid"), "--quick", "--out", out, "--logs", logs,
		"--plx", testhosts.Binary(t, "github.com/plx-run/plx"), "--trainee", testhosts.Binary(t, "github.com/plx-run/plx/internal/faultgrid/trainee"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	begun := time.Now()
	err := cmd.Run()
	t.Logf("%.1f s\n%s", time.Since(begun).Seconds(), clip(stderr.String()))
	if err != nil {
		t.Error(err)
	}
	var all struct {
		Samples []struct{ Cell, Proof, Failed string }
	}
	text, err := os.ReadFile(filepath.Join(out, "reliability", "grid.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Samples) != 10 {
		t.Errorf("%d cells, want 10\n%s", len(all.Samples), text)
	}
	for _, s := range all.Samples {
		if s.Proof == "" && s.Failed == "" {
			t.Errorf("%s has proved nothing", s.Cell)
		}
		if s.Failed != "" {
			log, err := os.ReadFile(filepath.Join(logs, strings.ReplaceAll(s.Cell, "/", "-")+".log"))
			t.Logf("%s: %v\n%s", s.Cell, err, clip(string(log)))
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "reliability.md"))
	if err != nil || !strings.Contains(string(page), "| SIGKILL | recovers |") {
		t.Errorf("the table: %v\n%s", err, page)
	}
}
