package e2e

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// TestREADME trains on two hosts of an embedded cluster. Here one has three workers.
func TestEmbeddedCluster(t *testing.T) {
	t.Parallel()
	b := local(t)
	res := b.want(0, "launch", "--local", "1x3", testhosts.Binary(t, "github.com/plx-run/plx/examples/linear"))
	if !strings.Contains(res.stdout, "worker:0") {
		t.Errorf("stdout:\n%s", res.stdout)
	}
}
