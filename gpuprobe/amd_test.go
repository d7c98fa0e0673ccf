package gpuprobe

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// amdMachine creates a folder that replaces a host's /: with /dev/kfd, and
// with AMD tools that print files of testdata/amd. An empty file name means
// that the host lacks the tool.
func amdMachine(t *testing.T, rocm, amd string) string {
	t.Helper()
	root := machine(t, "")
	write(t, root, "dev/kfd", "")
	write(t, root, "sys/module/amdgpu/version", "6.8.5\n")
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]string{"rocm-smi": rocm, "amd-smi": amd} {
		if answer == "" {
			continue
		}
		tool, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, root, "opt/rocm/bin/"+name, string(tool))
	}
	t.Setenv("PLX_FAKE_ROCM", filepath.Join(here, "amd", rocm))
	t.Setenv("PLX_FAKE_AMD", filepath.Join(here, "amd", amd))
	return root
}

// The probe finds AMD GPUs and the users of their processes, with each of
// AMD's tools.
func TestProbeFindsAMDGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, rocm, amd string
		tool            Tool
		uuids, runtime  string
		busy            int // index of the GPU that a process of the current user uses; -1 for none
		first           GPU
	}{
		{"rocm-smi", "rocm-mi250.json", "", ToolROCm, "GPU-9c1d2e3f4a5b6c7d GPU-1122334455667788", "1 0", 0,
			GPU{Name: "AMD Instinct MI250X / MI250", MemoryTotalMiB: 65520, MemoryUsedMiB: 20480, UtilizationPercent: 97, PCIBusID: "0000:c1:00.0", ComputeCapability: "gfx90a"}},
		{"old rocm-smi", "rocm-old.json", "", ToolROCm, "", "", -1,
			GPU{Name: "Vega 20 [Radeon VII]", MemoryTotalMiB: 16368, MemoryUsedMiB: 13, PCIBusID: "0000:03:00.0"}},
		{"amd-smi", "", "mi300x", ToolAMD, "GPU-5f4f3a4e5d6c7b8a GPU-19ab1a2b3c4d5e6f", "1 0", 1,
			GPU{Name: "AMD Instinct MI300X", MemoryTotalMiB: 196592, MemoryUsedMiB: 283, PCIBusID: "0000:05:00.0", ComputeCapability: "gfx942"}},
		{"amd-smi before rocm-smi", "rocm-old.json", "wrapped", ToolAMD, "GPU-aaaaaaaaaaaaaaaa GPU-19ab1a2b3c4d5e6f", "0 2", 1,
			GPU{Name: "AMD Instinct MI300X", MemoryTotalMiB: 196592, MemoryUsedMiB: 283, PCIBusID: "0000:05:00.0", ComputeCapability: "gfx942"}},
		{"rocm-smi after an amd-smi that fails", "rocm-old.json", "absent", ToolROCm, "", "", -1,
			GPU{Name: "Vega 20 [Radeon VII]", MemoryTotalMiB: 16368, MemoryUsedMiB: 13, PCIBusID: "0000:03:00.0"}},
	} {
		for name, sh := range shells(t) {
			if name != "sh" && c.name != string(c.tool) {
				continue // run only two cases with the other shells, to save time
			}
			t.Run(c.name+" in "+name, func(t *testing.T) {
				root := amdMachine(t, c.rocm, c.amd)
				write(t, root, "proc/25180/status", "Name:\tpython3\nUid:\t"+me.Uid+"\t"+me.Uid+"\n")
				r, err := probe(t.Context(), sh, root, Options{ToolTime: patience.Limit})
				if err != nil || r.Vendor != AMD || r.GPUTool != c.tool || r.GPUError != "" || r.Driver != "6.8.5" || len(r.GPUs) == 0 {
					t.Fatalf("%+v, %v", r, err)
				}
				var uuids, runtime []string
				for i, g := range r.GPUs {
					uuids, runtime = append(uuids, g.UUID), append(runtime, g.RuntimeID)
					if mine := len(g.Processes) == 1 && g.Busy && g.Processes[0].User == me.Username && g.Processes[0].PID == 25180; mine != (i == c.busy) || !mine && (g.Busy || g.UsedBy() != free) {
						t.Errorf("GPU %d is used by %+v", i, g)
					}
				}
				if got := strings.TrimSpace(strings.Join(uuids, " ")); got != c.uuids {
					t.Errorf("UUIDs %q, want %q", got, c.uuids)
				}
				if c.runtime == "1 0" && strings.Join(runtime, " ") != c.runtime {
					t.Errorf("the runtime's numbers are %q, want %q", runtime, c.runtime)
				}
				g := r.GPUs[0]
				if g.Name != c.first.Name || g.MemoryTotalMiB != c.first.MemoryTotalMiB || g.MemoryUsedMiB != c.first.MemoryUsedMiB ||
					g.UtilizationPercent != c.first.UtilizationPercent || g.PCIBusID != c.first.PCIBusID || g.ComputeCapability != c.first.ComputeCapability {
					t.Errorf("got %+v\nwant %+v", g, c.first)
				}
			})
		}
	}
}

// The report describes what is wrong on a host with an AMD GPU.
func TestReportExplainsAMDTrouble(t *testing.T) {
	sh := shells(t)["sh"]
	for _, c := range []struct {
		name  string
		rocm  string // output of the tool; empty if the host has no such tool
		kfd   bool
		tool  Tool
		error string
	}{
		{"no tool", "", true, ToolNone, "no tool that lists it: install rocm-smi or amd-smi"},
		{"tool of an image", "ERROR:root:Driver not initialized (amdgpu not found in modules)\n", false, ToolNone, ""},
		{"broken tool", "ERROR:root:ROCm SMI returned 8\n", true, ToolBroken, "rocm-smi failed with status 1: ERROR:root:ROCm SMI returned 8"},
		{"hung tool", "hang\n", true, ToolHung, "rocm-smi did not answer within 1s"},
		{"no card", `{"system": {}}` + "\n", true, ToolROCm, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool := ""
			limit := patience.Limit
			if c.rocm != "" {
				tool = "absent.json"
			}
			if c.tool == ToolHung {
				limit = 1e9
			}
			root := amdMachine(t, tool, "")
			write(t, root, "answer", c.rocm)
			t.Setenv("PLX_FAKE_ROCM", filepath.Join(root, "answer"))
			if !c.kfd {
				if err := os.Remove(filepath.Join(root, "dev/kfd")); err != nil {
					t.Fatal(err)
				}
			}
			r, err := probe(t.Context(), sh, root, Options{ToolTime: limit})
			if err != nil || r.GPUTool != c.tool || len(r.GPUs) != 0 || (r.Vendor == AMD) != (c.error != "") || !strings.Contains(r.GPUError, c.error) || c.error == "" && r.GPUError != "" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	root := machine(t, twoGPUs)
	write(t, root, "opt/rocm/bin/rocm-smi", "#!/bin/sh\n")
	r, err := probe(t.Context(), sh, root, Options{ToolTime: patience.Limit})
	if err != nil || r.Vendor != NVIDIA || len(r.GPUs) != 2 || r.GPUError != "" || !strings.Contains(r.Note, "NVIDIA GPUs, which are used") {
		t.Errorf("both vendors: %+v, %v", r, err)
	}
}

// The variables of Visible show a program exactly its own GPUs.
func TestVisibleShowsOnlyOwnGPUs(t *testing.T) {
	for _, c := range []struct {
		vendor    Vendor
		ids, want string
	}{
		{"", "3", "CUDA_VISIBLE_DEVICES=3 PLX_GPU_VENDOR=NVIDIA"},
		{NVIDIA, "GPU-a,GPU-b", "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b PLX_GPU_VENDOR=NVIDIA"},
		{AMD, "3", "ROCR_VISIBLE_DEVICES=3 HIP_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=0 PLX_GPU_VENDOR=AMD"},
		{AMD, "2,5", "ROCR_VISIBLE_DEVICES=2,5 HIP_VISIBLE_DEVICES=0,1 CUDA_VISIBLE_DEVICES=0,1 PLX_GPU_VENDOR=AMD"},
		{AMD, "", "CUDA_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES="},
		{"", "", "CUDA_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES="},
	} {
		if got := strings.Join(c.vendor.Visible(c.ids), " "); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.vendor, c.ids, got, c.want)
		}
	}
}

// For any output of AMD's tools, the report is valid.
func FuzzReadAMD(f *testing.F) {
	for _, folder := range []string{"mi300x", "wrapped"} {
		var parts []string
		for _, name := range []string{"list", "static", "metric", "process"} {
			text, err := os.ReadFile(filepath.Join("testdata/amd", folder, name+".json"))
			if err != nil {
				f.Fatal(err)
			}
			parts = append(parts, string(text))
		}
		f.Add(parts[0], parts[1], parts[2], parts[3])
	}
	for _, name := range []string{"rocm-mi250", "rocm-old"} {
		text, err := os.ReadFile("testdata/amd/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "10 10203 400\n10 40506 7", "", "")
	}
	f.Fuzz(func(t *testing.T, one, two, three, four string) {
		lines := func(s string) []string { return strings.Split(s, "\n") }
		for _, all := range []sections{
			{{name: "rocm", lines: lines(one)}, {name: "kfd-memory", lines: lines(two)}},
			{{name: "amd-list", lines: lines(one)}, {name: "amd-static", lines: lines(two)}, {name: "amd-metric", lines: lines(three)}, {name: "amd-apps", lines: lines(four)}},
		} {
			checkSound(t, read(all, 1e9))
		}
	})
}
