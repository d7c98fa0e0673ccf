package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who runs a program by itself beside a GPU learns that it is not used, unless the user
// has decided.
func TestUnusedGPU(t *testing.T) {
	there := filepath.Join(t.TempDir(), "nvidiactl")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "") // restores it after the test
	os.Unsetenv("CUDA_VISIBLE_DEVICES")
	for _, c := range []struct {
		choice, file string
		want         bool
	}{
		{"auto", there, true},
		{"auto", there + "0", false},
		{"cpu", there, false},
		{"gpu", there, false},
	} {
		if got := Unused(c.choice, c.file); strings.Contains(got, "--device gpu takes the first one") != c.want {
			t.Errorf("--device %s, %s: %q", c.choice, filepath.Base(c.file), got)
		}
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	if got := Unused("auto", there); got != "" {
		t.Errorf("the user hides the gpu: %q", got)
	}
}
