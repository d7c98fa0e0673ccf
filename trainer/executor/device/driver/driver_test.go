//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/internal/cudatest"
)

// The build tag decides which binding opens the GPU.
func TestOpen(t *testing.T) {
	cudatest.Start(t, cudatest.Options{})
	g, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%T", g.Memory); got != binding {
		t.Errorf("the gpu was opened by %s, want %s", got, binding)
	}
}
