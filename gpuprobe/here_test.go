package gpuprobe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
)

// The script finds this host's nvidia-smi on PATH, and BLAS libraries where
// the dynamic linker finds them.
func TestHereFindsToolAndLibraries(t *testing.T) {
	folder := t.TempDir()
	if err := executable.Write(filepath.Join(folder, "nvidia-smi"), []byte("#!/bin/sh\necho No devices were found\nexit 6\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"libblis.so.4", "libopenblas.so.0", "libblis.txt"} {
		if err := os.WriteFile(filepath.Join(folder, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	for _, c := range []struct{ visible, libraries string }{{"", ""}, {"1,3", ""}, {"", "/nowhere:" + folder}} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
		t.Setenv("LD_LIBRARY_PATH", c.libraries)
		answer, err := Local(t.Context(), Options{ToolTime: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r := answer.Report()
		if r.GPUTool != ToolSMI || len(r.GPUs) != 0 || r.CPUs == 0 || r.MemoryMiB == 0 || r.Arch == "-" || r.Kernel == "-" || r.Visible != c.visible {
			t.Errorf("%+v: %+v", c, r)
		}
		if c.libraries != "" && r.BLAS != "libopenblas.so.0" {
			t.Errorf("%+v: %s of %s", c, r.BLAS, r.BLASPath)
		}
	}
}
