package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
)

var update = flag.Bool("update", false, "write the table of testdata and the generated part of docs/gpu.md")

// golden compares a file with what it should be, and with -update writes it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	t.Errorf("%s differs: go test -C internal/tools ./gpucheck -update writes it", path)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// readRecord reads a record of this version.
func readRecord(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Format != 2 {
		return nil, fmt.Errorf("read %s: format %d is unknown to this version: use the gpucheck that wrote it", path, r.Format)
	}
	return r, nil
}

// sample is a record with every kind of line.
func sample() *record {
	return &record{
		Format: 2, Plx: "v9", Kernels: "0123456789abcdef", Begin: time.Date(2026, 11, 24, 5, 6, 7, 0, time.UTC), Quick: false,
		GPU: device.Info{Name: "Sample | GPU", Major: 7, Minor: 5, Driver: 12040, Total: 16 << 30},
		Checks: []check{{Name: "good", Status: passed, Seconds: 1.2, Text: "3 tests passed"},
			{Name: "bad", Status: failed, Seconds: 30, Text: "exit status 1", Output: "--- FAIL"}, {Name: "gone", Status: absent, Text: "no nvidia-smi"},
			{Name: "sizes", Status: passed, Text: "2 figures", Figures: []figure{{"Step/mlp", map[string]float64{"ns/op": 2e6}},
				{"Product/1", map[string]float64{"ns/op": 5e4, "GFLOP/s": 4e4}}}},
			{Name: torchPart, Status: passed, Text: "PyTorch 2.9, 1 figures", Figures: []figure{{"Product/1", map[string]float64{"ns/op": 4e4}}}}},
		Answers: "begin gpus\n",
	}
}

// What is saved is what is read, and the table shows all of it.
func TestRecord(t *testing.T) {
	folder, r := t.TempDir(), sample()
	if err := r.save(folder); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(filepath.Join(folder, "gpu-check.json"))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("read %+v, %v, want %+v", got, err, r)
	}
	table, err := os.ReadFile(filepath.Join(folder, "gpu-check.md"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/gpu-check.md", string(table))
}

// The part of docs/gpu.md that is generated stands between these lines.
const (
	pageBegin = "<!-- gpu-check: begin -->\n"
	pageEnd   = "<!-- gpu-check: end -->\n"
)

// unmet is what the page says without a record.
const unmet = `plx was never measured on a GPU. plx's GPU kernels, its two ways to call NVIDIA's driver, and the training
on a GPU ran on stand-ins only, so no speed on a GPU is known. ` + "`make gpu-check`" + ` builds a folder
of programs that check and measure them on a machine with a GPU. This section will show its result.
`

// docs/gpu.md shows docs/gpu-check.json, or says that there is none. A record of
// small sizes does not belong there, and neither does one of a failed part.
func TestPage(t *testing.T) {
	const path = "../../../docs/gpu.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inner := unmet
	if r, err := readRecord("../../../docs/gpu-check.json"); err == nil {
		inner = r.markdown()
		if r.Quick || strings.Contains(inner, "**failed**") {
			t.Error("docs/gpu-check.json was measured with -quick, or a part of it failed")
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		t.Fatalf("the page lacks the line %q or %q", pageBegin, pageEnd)
	}
	golden(t, path, before+pageBegin+inner+pageEnd+after)
}
