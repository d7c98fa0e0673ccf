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

// Whatever a host answers, the report is sound: no panic, GPUs in strictly
// rising index order, and nothing in it that could drive a terminal.
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
		r := read(parseSections(text, "plx-mark"), time.Second)
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
		var table strings.Builder
		if err := Table(&table, row, false); err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(table.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Fatalf("control character in the table: %q", table.String()[i:])
		}
		if _, err := json.Marshal(r.GPUs); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseGPU(f *testing.F) {
	f.Add("0, GPU-1, 00000000:3B:00.0, 570.124.06, 143771, 90113, 97, Default, Disabled, NVIDIA H200", true)
	f.Add("0, GPU-1, 0000:01:00.0, 340.108, 127, 27, [Not Supported], [Not Supported], GeForce, 8400M", false)
	f.Add("Field \"mig.mode.current\" is not a valid field to query.", true)
	f.Fuzz(func(t *testing.T, line string, withMIG bool) {
		g, ok := parseGPU(line, withMIG)
		if !ok {
			return
		}
		if g.Index < 0 || g.Index > maxIndex || !utf8.ValidString(g.Name) {
			t.Fatalf("%q gives %+v", line, g)
		}
		if g.PCIBusID != "" && canonicalBus(g.PCIBusID) != g.PCIBusID {
			t.Fatalf("bus %q is not canonical", g.PCIBusID)
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
