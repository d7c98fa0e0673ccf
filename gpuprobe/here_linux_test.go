package gpuprobe

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/executable"
)

// The script is the twin: an agent tells of a host what the script does.
func TestHereSaysWhatTheScriptSays(t *testing.T) {
	libraries := t.TempDir()
	for _, file := range []string{"libblis.so.4", "libopenblas.so.0", "libblis.txt"} {
		if err := os.WriteFile(filepath.Join(libraries, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ visible, libraries string }{{"", ""}, {"1,3", ""}, {"", "/nowhere:" + libraries}} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
		t.Setenv("LD_LIBRARY_PATH", c.libraries)
		want, err := Probe(t.Context(), hereShell{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := Here(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := answer.Report()
		if c.libraries == "" {
			want.BLASPath, got.BLASPath = canonical(t, want.BLASPath), canonical(t, got.BLASPath)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %+v, want %+v", c, got, want)
		}
		if want.CPUs == 0 || want.MemoryMiB == 0 || want.Visible != c.visible || c.libraries != "" && want.BLAS == "" {
			t.Errorf("the twin does not tell enough: %+v", want)
		}
	}
}

// canonical resolves the links of a path: the loader's cache may name a library by another one
// than its folder does.
func canonical(t *testing.T, path string) string {
	t.Helper()
	if path == "" {
		return ""
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// Where there is a nvidia-smi, it is asked.
func TestHereAsksTheTool(t *testing.T) {
	folder := t.TempDir()
	if err := executable.Write(filepath.Join(folder, "nvidia-smi"), []byte("#!/bin/sh\necho No devices were found\nexit 6\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	answer, err := Here(t.Context(), Options{ToolTime: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if r := answer.Report(); r.GPUTool != ToolSMI || len(r.GPUs) != 0 || r.CPUs == 0 {
		t.Errorf("%+v", r)
	}
}
