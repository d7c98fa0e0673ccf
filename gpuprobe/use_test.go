package gpuprobe

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// asked runs UseScript with a fake tool on its PATH.
func asked(t *testing.T, variable, tool, facts string) (string, error) {
	t.Helper()
	folder := t.TempDir()
	text, err := os.ReadFile(filepath.Join("testdata", tool))
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, tool, string(text))
	write(t, folder, "facts", facts)
	cmd := exec.Command("/bin/sh", "-c", UseScript())
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), variable+"="+filepath.Join(folder, "facts"))
	out, err := cmd.Output()
	return string(out), err
}

func TestUseOfNVIDIA(t *testing.T) {
	text, err := asked(t, "PLX_FAKE_GPUS", "nvidia-smi", `mode ok
driver 570.124.06
gpu 1|GPU-bbbb|NVIDIA H200|00000000:86:00.0|143771|1|[N/A]|Default|Enabled|9.0
mig 1|0|3g.71gb|MIG-cccc
gpu 0|GPU-aaaa|NVIDIA H200, special|00000000:3B:00.0|143771|2048|97|Default|Disabled|9.0|61|412.56
app GPU-aaaa|123|/usr/bin/python3 -c import a, b, c, d, e, f, g, h, i, j|500
app GPU-gone|124|python|500
app MIG-cccc|125|python|500
`)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	want := []Use{
		{GPU{Index: 0, UUID: "GPU-aaaa", Name: "NVIDIA H200, special", PCIBusID: "0000:3b:00.0", Driver: "570.124.06", ComputeMode: "Default",
			MemoryTotalMiB: 143771, MemoryUsedMiB: 2048, UtilizationPercent: 97,
			Processes: []Process{{PID: 123, Name: "/usr/bin/python3 -c import a, b, c, d, e, f, g, h, i, j", MemoryMiB: 500}}}, 61, 412.56},
		{GPU{Index: 1, UUID: "GPU-bbbb", Name: "NVIDIA H200", PCIBusID: "0000:86:00.0", Driver: "570.124.06", ComputeMode: "Default",
			MemoryTotalMiB: 143771, MemoryUsedMiB: 1, UtilizationPercent: Unknown}, Unknown, Unknown},
	}
	if got := ParseUse(text); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

func TestUseOfAMD(t *testing.T) {
	text, err := asked(t, "PLX_FAKE_ROCM", "rocm-smi", `WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"Device Name": "AMD Instinct MI250X", "Unique ID": "0x9", "PCI Bus": "0000:C1:00.0", "GPU use (%)": "97", "VRAM Total Memory (B)": "68702699520", `+
		`"VRAM Total Used Memory (B)": "21474836480", "Temperature (Sensor edge) (C)": "41.0", "Temperature (Sensor junction) (C)": "57.0", "Temperature (Sensor memory) (C)": "N/A", `+
		`"Average Graphics Package Power (W)": "301.5"}, "card1": {"PCI Bus": "0000:C6:00.0", "GPU use (%)": "0"}, "system": {"PID7": "python3, 1, 21000000000, 0, unknown"}}
`)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	got := ParseUse(text)
	if len(got) != 2 || got[0].ID() != "GPU-0000000000000009" || got[0].Temperature != 57 || got[0].Power != 301.5 || got[0].UtilizationPercent != 97 ||
		got[0].MemoryUsedMiB != 20480 || len(got[0].Processes) != 1 || got[0].Processes[0].PID != 7 {
		t.Errorf("first GPU: %+v", got)
	}
	if len(got) == 2 && (got[1].ID() != "0000:c6:00.0" || got[1].Temperature != Unknown || got[1].Power != Unknown || got[1].MemoryUsedMiB != Unknown || len(got[1].Processes) != 0) {
		t.Errorf("second GPU: %+v", got[1])
	}
}

// UseScript exits with NoTool if the host has no tool, so that the caller
// stops polling, and with another status if the tool fails.
func TestUseScriptExitStatusWithoutGPUs(t *testing.T) {
	for _, tool := range []string{"nvidia-smi", "rocm-smi"} {
		if path, err := exec.LookPath(tool); err == nil {
			t.Skipf("this machine has %s", path)
		}
	}
	status := func(err error) int {
		if exit, ok := err.(*exec.ExitError); ok {
			return exit.ExitCode()
		}
		return 0
	}
	if err := exec.Command("/bin/sh", "-c", UseScript()).Run(); status(err) != NoTool {
		t.Errorf("without a tool: %v", err)
	}
	if text, err := asked(t, "PLX_FAKE_GPUS", "nvidia-smi", "mode nodriver\n"); status(err) != 1 || !strings.Contains(text, "couldn't communicate") || ParseUse(text) != nil {
		t.Errorf("without a driver: %v: %s", err, text)
	}
}

// For any output of a tool, ParseUse returns valid numbers.
func FuzzParseUse(f *testing.F) {
	f.Add("61, 412.56, 0, GPU-1, 00000000:3B:00.0, 570.124.06, 143771, 90113, 97, Default, NVIDIA H200\nGPU-1, 123, 500, python")
	f.Add(`{"card0": {"GPU use (%)": "3", "Temperature (Sensor edge) (C)": "41.0", "Average Graphics Package Power (W)": "3e9"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, u := range ParseUse(text) {
			if u.Index < 0 || u.Temperature < Unknown || !(u.Power >= Unknown) || u.MemoryUsedMiB < Unknown || u.UtilizationPercent < Unknown {
				t.Fatalf("%+v", u)
			}
		}
	})
}
