package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If the user hides all GPUs, a worker must compute on the CPU, or fail with
// --device gpu.
func TestWorkerWithHiddenGPU(t *testing.T) {
	t.Setenv("PLX_CUDA", "libabsent.so.7")
	for _, visible := range []string{"", "-1", "NoDevFiles"} {
		if g, err := Open("auto", visible, "", 0, true); g != nil || err != nil {
			t.Errorf("%q: %v, %v", visible, g, err)
		}
		if _, err := Open("gpu", visible, "", 0, true); err != ErrNone {
			t.Errorf("%q: %v, want %v", visible, err, ErrNone)
		}
	}
	if _, err := Open("auto", "0", Vendor, 0, true); !Failed(err) || !strings.Contains(err.Error(), "was given gpu 0 and cannot use it: ") {
		t.Errorf("got %v", err)
	}
}

// With a GPU of another vendor, a worker must compute on the CPU, or fail with
// --device gpu.
func TestGPUOfOtherVendorIsNotUsed(t *testing.T) {
	t.Setenv("PLX_CUDA", "libabsent.so.7")
	if g, err := Open("auto", "0", "AMD", 0, true); g != nil || err != nil {
		t.Errorf("auto: %v, %v", g, err)
	}
	if _, err := Open("gpu", "0", "AMD", 0, true); err == nil || !strings.Contains(err.Error(), "was given a gpu of AMD") {
		t.Errorf("gpu: %v", err)
	}
}

// A program without a launcher must log that it does not use the machine's
// GPU, unless the user has set --device or CUDA_VISIBLE_DEVICES.
func TestUnusedGPUIsReported(t *testing.T) {
	there := filepath.Join(t.TempDir(), "nvidiactl")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "") // makes the test restore the variable's old value at its end
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
