//go:build linux

package process

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

func TestShell(t *testing.T) {
	c, err := NewChildren()
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]struct {
		out    string
		status int
	}{
		"echo one; echo two >&2; exit 3": {"one\n", 3},
		"cat; true":                      {"", 0},
		"kill -9 $$":                     {"", -1},
		"exec yes":                       {strings.Repeat("y\n", 50), -1},
	} {
		out, status, err := c.Shell(t.Context(), script, 100)
		if string(out) != want.out || status != want.status || err != nil {
			t.Errorf("%s: %q, status %d, %v", script, out, status, err)
		}
	}
	late := errors.New("it took too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	began := time.Now()
	if _, _, err := c.Shell(ctx, "sleep 600 & sleep 600", 100); err != late || time.Since(began) > patience.Limit {
		t.Errorf("a script that does not end: %v after %s", err, time.Since(began))
	}
	if left, err := c.Clear(patience.Limit); err != nil || len(left) > 0 {
		t.Errorf("left %v: %v", left, err)
	}
	c.Close()
}
