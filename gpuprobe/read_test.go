package gpuprobe

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/answers/*.json anew")

func answerOf(t testing.TB, name string) Report {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "answers", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return read(parseSections(string(text), "plx-mark"), 10*time.Second)
}

func TestRecordedOutputGivesJSON(t *testing.T) {
	files, err := filepath.Glob("testdata/answers/*.txt")
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d answers: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := JSON(&got, []Row{{Host: name, Report: answerOf(t, name)}}); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".txt") + ".json"
			want, err := os.ReadFile(golden) // read the old content before -update writes, so that a run that changes the file fails
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
		})
	}
}

// The report distinguishes a host without GPUs from a failing or hanging tool.
// Only a host without GPUs may fall back to its CPU.
func TestReportDistinguishesNoneBrokenHung(t *testing.T) {
	for name, want := range map[string]struct {
		tool  Tool
		gpus  int
		error string
	}{
		"busy-570":            {ToolSMI, 2, ""},
		"no-gpu":              {ToolNone, 0, ""},
		"image-without-gpu":   {ToolNone, 0, ""},
		"no-devices":          {ToolSMI, 0, ""},
		"no-driver":           {ToolNone, 0, "no driver"},
		"proc-only":           {ToolProc, 1, ""},
		"mismatch-550":        {ToolBroken, 1, "status 18: Failed to initialize NVML: Driver/library version mismatch"},
		"driver-not-loaded":   {ToolBroken, 0, "status 9"},
		"no-devices-but-proc": {ToolBroken, 1, "status 6: No devices were found"},
		"hung":                {ToolHung, 1, "did not answer within 10s"},
		"processes-hung":      {ToolSMI, 1, "did not list the processes within 10s"},
		"lost-520":            {ToolSMI, 2, "status 15"},
	} {
		r := answerOf(t, name)
		if r.GPUTool != want.tool || len(r.GPUs) != want.gpus || !strings.Contains(r.GPUError, want.error) || want.error == "" && r.GPUError != "" {
			t.Errorf("%s: tool %q, %d GPUs, error %q; want %+v", name, r.GPUTool, len(r.GPUs), r.GPUError, want)
		}
	}
}

func TestFieldsNotReportedAreUnknown(t *testing.T) {
	g := answerOf(t, "old-340").GPUs[0]
	if g.MemoryTotalMiB != 127 || g.UtilizationPercent != Unknown || g.ComputeMode != "" || g.PCIBusID != "0000:01:00.0" || g.Busy {
		t.Errorf("driver 340: %+v", g)
	}
	g = answerOf(t, "unified-580").GPUs[0]
	if g.MemoryTotalMiB != Unknown || g.MemoryUsedMiB != Unknown || g.PCIBusID != "000f:01:00.0" || g.Fault != "" || g.Busy {
		t.Errorf("unified memory: %+v", g)
	}
	mig := answerOf(t, "mig-535").GPUs
	if len(mig[0].MIG) != 2 || !mig[0].Busy || mig[1].MemoryUsedMiB != Unknown || mig[1].Fault != "" || !mig[1].MIGMode {
		t.Errorf("MIG: %+v", mig)
	}
}

// A GPU that has failed reports this in only some of its fields.
func TestFaultInOneField(t *testing.T) {
	const sound = "0, GPU-aaaa, 00000000:3B:00.0, 570.124.06, 81559, 0, 100, Default, Disabled, 9.0, NVIDIA H100"
	for _, c := range []struct{ field, words, want string }{
		{"100", "100", ""},
		{"100", "[GPU requires reset]", "GPU requires reset"},
		{"100", "[Unknown Error]", ""},
		{"100", "ERR!", ""},
		{"GPU-aaaa", "[GPU is lost]", "GPU is lost"},
		{"81559", "[Unknown Error]", "nvidia-smi cannot read its memory: Unknown Error"},
		{"NVIDIA H100", "ERR!", "nvidia-smi cannot read its name: ERR!"},
		{"9.0", "[Unknown Error]", ""},
	} {
		g, ok := parseGPU(strings.Replace(sound, c.field, c.words, 1), 2)
		if !ok || g.Fault != c.want {
			t.Errorf("%s for %s: %v, %q", c.words, c.field, ok, g.Fault)
		}
	}
}

// log610 is the beginning of the log (nvidia-smi -q) of driver 610.57.04, with
// both names for the CUDA version.
const log610 = `Timestamp                                              : Sun Sep  6 08:21:38 2026
Driver Version                                         : 610.57.04 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]
CUDA Version                                           : 13.3 [Deprecated; will be removed in CUDA 14.0. Use CUDA UMD Version instead]
KMD Version                                            : 610.57.04
CUDA UMD Version                                       : 13.3
`

// Old drivers report neither the compute capability nor the CUDA version.
// Drivers from 610 on use another name for the CUDA version.
func TestCapabilityAndCUDAVersion(t *testing.T) {
	for name, want := range map[string]struct{ capability, cuda string }{
		"busy-570":          {"9.0", "12.8"},
		"mig-old-names-460": {"", "11.2"},
		"old-440":           {"", "10.2"},
		"old-340":           {"", ""},
		"unified-580":       {"12.1", "13.0"},
		"lost-520":          {"7.5", ""},
		"processes-hung":    {"", ""},
	} {
		r := answerOf(t, name)
		if got := r.GPUs[0].ComputeCapability; got != want.capability || r.CUDA != want.cuda {
			t.Errorf("%s: capability %q, CUDA %q, want %+v", name, got, r.CUDA, want)
		}
	}
	newName := log610[strings.Index(log610, "KMD"):]
	oldName, _, _ := strings.Cut(log610, "KMD Version  ")
	for _, c := range []struct{ log, want string }{
		{log610, "13.3"},
		{newName, "13.3"},
		{oldName, "13.3"},
		{"CUDA Version : N/A", ""},
		{"CUDA Version : Not Found", ""},
		{"CUDA Version : 12.4.1", ""},
		{"CUDA UMD Version : N/A\nCUDA Version : 13.3", "13.3"},
	} {
		if got := cudaVersion(strings.Split(c.log, "\n")); got != c.want {
			t.Errorf("%q: got %q, want %q", c.log, got, c.want)
		}
	}
}

func TestProcessesAndTheirUsers(t *testing.T) {
	got := answerOf(t, "busy-570").GPUs[0].Processes
	want := []Process{
		{55111, "/usr/bin/python3 -c import torch, os", "alice", 20481},
		{55112, "python", "1003", 69000},
		{88001, "", "", 632}, // the pid is from another namespace, so its owner here (root) is not the process's user
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestBusy(t *testing.T) {
	for _, c := range []struct {
		used, util, processes int
		want                  bool
	}{
		{0, 0, 0, false},
		{4, 100, 0, false}, // idle, but woken by the query itself
		{300, 0, 0, false}, // a desktop
		{300, 9, 0, false},
		{300, 10, 0, true},
		{1024, 0, 0, false},
		{1025, 0, 0, true},
		{0, 0, 1, true},
		{Unknown, 0, 0, false},
		{Unknown, 10, 0, true},
		{Unknown, Unknown, 0, false},
	} {
		g := GPU{MemoryUsedMiB: c.used, UtilizationPercent: c.util, Processes: make([]Process, c.processes)}
		if g.setBusy(""); g.Busy != c.want {
			t.Errorf("%+v: got %v", c, g.Busy)
		}
	}
}

func TestBLASChoice(t *testing.T) {
	for _, c := range []struct{ lines, file, path string }{
		{"", "", ""},
		{"libblis.so.4 /a\nlibmkl_rt.so.2 /b", "libmkl_rt.so.2", "/b"},
		{"libopenblas.so /dev\nlibopenblas.so.0 /first\nlibopenblas.so.0 /second", "libopenblas.so.0", "/first"},
		{"libopenblas_helper.so.1 /a\ngarbage", "", ""},
	} {
		if file, path := blasChoice(strings.Split(c.lines, "\n")); file != c.file || path != c.path {
			t.Errorf("%q: got %q %q", c.lines, file, path)
		}
	}
}

func TestJSONShape(t *testing.T) {
	var b bytes.Buffer
	rows := []Row{{Host: "b"}, {Host: "a", Err: errors.New("dial\nrefused")}, {Host: "g", Report: answerOf(t, "unified-580")},
		{Host: "short", Report: answerOf(t, "unified-580"), Unmet: errors.New("no GPU 7:\nthe host has 0")}}
	if err := JSON(&b, rows); err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Host      string
		OK        *bool
		Error     *string
		CPUs      *int
		MemoryMiB *int `json:"memory_mib"`
		GPUs      []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got) != 4 {
		t.Fatalf("%v: %s", err, b.String())
	}
	if short := got[3]; *short.OK || *short.Error != "no GPU 7:; the host has 0" || *short.CPUs == 0 || len(short.GPUs) != 1 {
		t.Errorf("a host that lacks a GPU: %+v", short)
	}
	if got[0].Host != "b" || !*got[0].OK || got[1].Host != "a" || *got[1].OK || *got[1].Error != "dial; refused" {
		t.Errorf("wrong rows: %s", b.String())
	}
	if strings.Contains(b.String(), `"gpus": null`) {
		t.Error("gpus is null")
	}
	gpu := got[2].GPUs[0]
	for _, key := range []string{"index", "uuid", "name", "memory_total_mib", "memory_used_mib", "utilization_percent", "busy", "compute_capability"} {
		if _, there := gpu[key]; !there {
			t.Errorf("no %s in %v", key, gpu)
		}
	}
	if gpu["memory_total_mib"] != nil || gpu["utilization_percent"] != 0.0 {
		t.Errorf("unknown numbers are to be null: %v", gpu)
	}
	b.Reset()
	if err := JSON(&b, nil); err != nil || strings.TrimSpace(b.String()) != "[]" {
		t.Errorf("no rows: %q %v", b.String(), err)
	}
}
