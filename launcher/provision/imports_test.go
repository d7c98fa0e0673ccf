package provision

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

func TestCheckTorch(t *testing.T) {
	const hint = "install a torch for an older CUDA into the environment, or a later driver on the host"
	for _, c := range []struct {
		name             string
		got              Imported
		gpus             int
		driver           string
		note, want, hint string
	}{
		{"no torch", Imported{}, 1, "535.1", "", "", ""},
		{"failed", Imported{Module: "torch", Error: "ModuleNotFoundError: No module named 'torch'", Torch: "2.1"}, 0, "", "", "import torch: ModuleNotFoundError: No module named 'torch'", ""},
		{"finds the GPU", Imported{Torch: "2.1", CUDA: "12.1", Available: true}, 1, "1", "", "", ""},
		{"AMD", Imported{Torch: "2.1", HIP: "5.6"}, 1, "", "", "", ""},
		{"no worker has a GPU", Imported{Torch: "2.1", CUDA: "12.1"}, 0, "470.1", "", "", ""},
		{"for CPUs", Imported{Torch: "2.1"}, 2, "535.1", "torch 2.1 is built for CPUs only, and workers have GPUs", "", ""},
		{"driver too old", Imported{Torch: "2.1", CUDA: "12.1"}, 1, "525.60.12", "", "torch 2.1 is built for CUDA 12.1, which needs NVIDIA driver 525.60.13 or later, and the driver is 525.60.12", hint},
		{"driver just enough", Imported{Torch: "2.1", CUDA: "12.1"}, 1, "525.60.13", "", "torch 2.1 is built for CUDA 12.1 and finds no GPU; the driver is 525.60.13", ""},
		{"later CUDA", Imported{Torch: "2.1", CUDA: "14.0"}, 1, "100", "", "torch 2.1 is built for CUDA 14.0 and finds no GPU; the driver is 100", ""},
		{"no driver", Imported{Torch: "2.1", CUDA: "12.1"}, 1, "", "", "torch 2.1 is built for CUDA 12.1 and finds no GPU; the driver is unknown", ""},
	} {
		note, err := checkTorch(c.got, c.gpus, c.driver, "CUDA")
		text := ""
		if err != nil {
			text = err.Error()
		}
		if note != c.note || text != c.want || exit.Hint(err) != c.hint {
			t.Errorf("%s: %q, %q, hint %q", c.name, note, text, exit.Hint(err))
		}
	}
}

// A torch that is built for CUDA cannot use AMD GPUs.
func TestReportA4TorchForOtherVendor(t *testing.T) {
	_, err := checkTorch(Imported{Torch: "2.1", CUDA: "12.1"}, 1, "6.8.5", "ROCm")
	if err == nil || err.Error() != "torch 2.1 is built for CUDA 12.1, and the GPUs there need one for ROCm" || exit.Hint(err) != "install a torch for ROCm into the environment" {
		t.Errorf("%v", err)
	}
}

func TestModuleNames(t *testing.T) {
	got, err := ModuleNames([]string{"torch, numpy", "a.b_1"})
	if err != nil || !slices.Equal(got, []string{"torch", "numpy", "a.b_1"}) {
		t.Errorf("%q %v", got, err)
	}
	for _, wrong := range []string{"", "torch,", "-c", "a..b", "os;x", "1a", "a b"} {
		if _, err := ModuleNames([]string{wrong}); exit.Code(err) != exit.CodeUsage {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
