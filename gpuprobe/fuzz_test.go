package gpuprobe

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// For any output of a host, read does not panic, the GPUs are in strictly
// ascending index order, and no text in the report can control a terminal.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/answers/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkSound(t, read(parseSections(text, "plx-mark"), time.Second))
	})
}

// checkSound checks the conditions that every report must meet.
func checkSound(t *testing.T, r Report) {
	t.Helper()
	for i, g := range r.GPUs {
		if g.Index < 0 || i > 0 && r.GPUs[i-1].Index >= g.Index {
			t.Fatalf("index %d is out of order", g.Index)
		}
		if g.MemoryTotalMiB < Unknown || g.MemoryUsedMiB < Unknown || g.UtilizationPercent < Unknown {
			t.Fatalf("negative number in %+v", g)
		}
	}
	if r.GPUs == nil || r.CPUs < 0 || r.MemoryMiB < 0 {
		t.Fatalf("unsound report %+v", r)
	}
	row := []Row{{Host: "h", Report: r}}
	if err := JSON(io.Discard, row); err != nil {
		t.Fatal(err)
	}
	hosts, gpus, notes := Tables(row)
	for _, cells := range append(append(hosts, gpus...), notes) {
		if text := strings.Join(cells, " "); strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Fatalf("control character in the table: %q", text)
		}
	}
	if _, err := json.Marshal(r.GPUs); err != nil {
		t.Fatal(err)
	}
}

func FuzzParseGPU(f *testing.F) {
	f.Add("0, GPU-1, 00000000:3B:00.0, 570.124.06, 143771, 90113, 97, Default, Disabled, 9.0, NVIDIA H200", uint8(2))
	f.Add("0, GPU-1, 00000000:31:00.0, 460.73.01, 40536, 11, [N/A], Default, Enabled, A100-PCIE-40GB", uint8(1))
	f.Add("0, GPU-1, 0000:01:00.0, 340.108, 127, 27, [Not Supported], [Not Supported], GeForce, 8400M", uint8(0))
	f.Add("Field \"mig.mode.current\" is not a valid field to query.", uint8(2))
	f.Fuzz(func(t *testing.T, line string, optional uint8) {
		g, ok := parseGPU(line, int(optional)%len(queries))
		if !ok {
			return
		}
		if c := g.ComputeCapability; c != "" && !majorMinor().MatchString(c) {
			t.Fatalf("%q gives capability %q", line, c)
		}
		if g.Index < 0 || g.Index > maxIndex || !utf8.ValidString(g.Name) {
			t.Fatalf("%q gives %+v", line, g)
		}
		if g.PCIBusID != "" && canonicalBus(g.PCIBusID) != g.PCIBusID {
			t.Fatalf("bus %q is not canonical", g.PCIBusID)
		}
	})
}

func FuzzCUDAVersion(f *testing.F) {
	f.Add("Driver Version   : 535.129.03\nCUDA Version   : 12.2\n\nAttached GPUs   : 1\n")
	f.Add(log610)
	f.Fuzz(func(t *testing.T, text string) {
		if v := cudaVersion(strings.Split(text, "\n")); v != "" && !majorMinor().MatchString(v) {
			t.Fatalf("%q gives %q", text, v)
		}
	})
}

func FuzzParseProcess(f *testing.F) {
	f.Add("GPU-1, 55111, 20481, /usr/bin/python3 -c import torch, os")
	f.Add("GPU-1, [Not Supported], [Not Supported], [Not Supported]")
	f.Fuzz(func(t *testing.T, line string) {
		if _, p, ok := parseProcess(line); ok && (p.PID <= 0 || p.MemoryMiB < Unknown) {
			t.Fatalf("%q gives %+v", line, p)
		}
	})
}

func FuzzParseList(f *testing.F) {
	f.Add("GPU 0: A100 (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-GPU-1/7/0)")
	f.Fuzz(func(t *testing.T, text string) {
		for gpu, devices := range parseList(strings.Split(text, "\n")) {
			if gpu == "" || len(devices) == 0 {
				t.Fatalf("%q gives devices of no GPU", text)
			}
		}
	})
}
