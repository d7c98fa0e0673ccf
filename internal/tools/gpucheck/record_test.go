package main

import (
	"context"
	"errors"
	"flag"
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

// sample is a record with every kind of line.
func sample() *record {
	return &record{
		Format: 1, Plx: "v9", Kernels: "0123456789abcdef", Begin: time.Date(2026, 11, 24, 5, 6, 7, 0, time.UTC), Torch: "2.9",
		GPU: device.Info{Name: "Sample | GPU", Major: 7, Minor: 5, Driver: 12040, Total: 16 << 30},
		Parts: []outcome{{Part: "good", Status: passed, Seconds: 1.2, Text: "3 tests passed"},
			{Part: "bad", Status: failed, Seconds: 30, Text: "exit status 1", Output: "--- FAIL"}, {Part: "gone", Status: absent, Text: "no nvidia-smi"}},
		Figures: []figure{{What: "step", Ms: 2}, {What: "product", Ms: 0.05, Work: 2, Unit: "GFLOP", TorchMs: 0.04}},
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
	if r.ok() {
		t.Error("a record with a failed part is ok")
	}
	if r.Parts = r.Parts[:1]; !r.ok() {
		t.Error("a record without a failed part is not ok")
	}
	r.Format = 2
	if err := r.save(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(filepath.Join(folder, "gpu-check.json")); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("another format: %v", err)
	}
}

// docs/gpu.md shows docs/gpu-check.json, or says that there is none. A record of
// small sizes does not belong there, and neither does one of a failed part.
func TestPage(t *testing.T) {
	const path = "../../../docs/gpu.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRecord("../../../docs/gpu-check.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if r != nil && r.Quick {
		t.Error("docs/gpu-check.json was measured with -quick")
	}
	want, err := page(string(text), r)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, path, want)
	if r == nil && !strings.Contains(want, "No GPU has been met.") {
		t.Error("the page does not say that no GPU has been met")
	}
	shown, err := page(string(text), sample())
	if err != nil || !strings.Contains(shown, "| product | 50 µs, 4e+04 GFLOP/s |") || strings.Contains(shown, "No GPU has been met.") {
		t.Errorf("with a record: %v\n%s", err, shown)
	}
	if _, err := page("no lines", nil); err == nil {
		t.Error("a page without the lines passes")
	}
}

// A part that fails, ends late or lacks something does not end the run, and is told
// apart.
func TestOutcomes(t *testing.T) {
	f := &folder{temp: t.TempDir(), path: t.TempDir()}
	sh := func(script string) func(context.Context, *folder, *record) (string, error) {
		return func(ctx context.Context, f *folder, _ *record) (string, error) {
			return "done", f.exec(ctx, nil, "/bin/sh", "-c", script).failed("sh")
		}
	}
	for _, c := range []struct {
		part part
		want outcome
	}{
		{part{"good", time.Minute, sh("exit 0")}, outcome{Status: passed, Text: "done"}},
		{part{"bad", time.Minute, sh("echo words; exit 3")}, outcome{Status: failed, Text: "sh: exit status 3", Output: "words\n"}},
		{part{"late", 100 * time.Millisecond, sh("echo words; sleep 600 & sleep 600")}, outcome{Status: failed, Text: "sh: it did not end within 0s", Output: "words\n"}},
		{part{"gone", time.Minute, tests("missing.test", "-test.run=")}, outcome{Status: absent, Text: "the folder was built without missing.test: not checked"}},
		{part{"wrong", time.Minute, func(context.Context, *folder, *record) (string, error) { return "", errors.New("two\nlines") }},
			outcome{Status: failed, Text: "two lines"}},
	} {
		got := f.one(t.Context(), c.part, nil)
		if got.Seconds > 30 {
			t.Errorf("%s took %v s", c.part.name, got.Seconds)
		}
		c.want.Part, c.want.Seconds = c.part.name, got.Seconds
		if got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}

// All parts end within the time of a run.
func TestLimits(t *testing.T) {
	sum := 10 * time.Second // to open the GPU
	for _, p := range parts {
		sum += p.limit
	}
	if sum > whole || whole >= 5*time.Minute {
		t.Errorf("the parts may take %v, a run %v", sum, whole)
	}
}

func TestCounted(t *testing.T) {
	if text, err := counted("=== RUN A\n--- PASS: A (0.0s)\n    --- PASS: A/1\n--- SKIP: B\n"); err != nil || text != "2 tests passed, 1 skipped" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := counted("testing: warning: no tests to run\nPASS\n"); err == nil {
		t.Error("a program without tests passes")
	}
}
