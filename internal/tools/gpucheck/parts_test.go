package main

import (
	"compress/gzip"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// asProgram makes the test's binary this program.
const asProgram = "PLX_GPUCHECK_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// pack puts a shell script into a folder as make gpu-check packs programs.
func pack(t *testing.T, f *folder, name, script string) {
	t.Helper()
	to, err := os.Create(filepath.Join(f.path, name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(to)
	_, err = packed.Write([]byte("#!/bin/sh\n" + script))
	for _, err := range []error{err, packed.Close(), to.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A part that fails, ends late or lacks something is told apart, and keeps what it
// measured before.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         check
	}{
		{"good", "echo '=== RUN A'; echo '--- PASS: A (0.0s)'; echo '    --- PASS: A/1 (0.0s)'; echo '--- SKIP: B'", check{Status: passed, Text: "2 tests passed, 1 skipped, 0 figures"}},
		{"bad", "echo words; exit 3", check{Status: failed, Text: "exit status 3", Output: "words\n"}},
		{"late", "echo words; sleep 600 & sleep 600", check{Status: failed, Text: "it did not end within 200ms", Output: "words\n"}},
		{"empty", "echo 'testing: warning: no tests to run'; echo PASS", check{Status: failed, Text: "nothing was checked"}},
		{"gone", "", check{Status: absent, Text: "the folder was built without gone: not checked"}},
		{"measures", `printf 'BenchmarkA\nBenchmarkA/3x4-16   \t 7\t 2.5 ns/op\t 3 GB/s\nBenchmarkStep/b 1 9 ns/op\n'; [ "$PLX_TEST_GPU" = 1 ]`, check{Status: passed, Text: "0 tests passed, 0 skipped, 2 figures",
			Figures: []figure{{"A/3x4", map[string]float64{"ns/op": 2.5, "GB/s": 3}}, {"Step/b", map[string]float64{"ns/op": 9}}}}},
		{"quick", `echo "--- PASS: $*"; case "$*" in *-test.short*) ;; *) exit 1 ;; esac`, check{Status: passed, Text: "1 tests passed, 0 skipped, 0 figures"}},
		{"breaks", "echo 'BenchmarkA 1 9 ns/op'; echo bad >&2; exit 2", check{Status: failed, Text: "exit status 2", Output: "BenchmarkA 1 9 ns/op\nbad\n",
			Figures: []figure{{"A", map[string]float64{"ns/op": 9}}}}},
	} {
		f := &folder{path: t.TempDir(), temp: t.TempDir(), quick: c.name == "quick"}
		if c.script != "" {
			pack(t, f, c.name, c.script)
		}
		limit := time.Minute
		if c.name == "late" {
			limit = 200 * time.Millisecond
		}
		got := f.check(t.Context(), part{c.name, limit, c.name, nil}, nil)
		if got.Seconds > 30 {
			t.Errorf("%s took %v s", c.name, got.Seconds)
		}
		c.want.Name, c.want.Seconds = c.name, got.Seconds
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}

// PyTorch's script gets the names of what was measured. A machine without it, or where it
// finds no GPU, has no such part.
func TestTorch(t *testing.T) {
	bin, last := t.TempDir(), parts[len(parts)-1]
	t.Setenv("PATH", bin)
	f := &folder{path: t.TempDir(), temp: t.TempDir()}
	if c := f.check(t.Context(), last, nil); c.Status != absent || !strings.Contains(c.Text, "python3") {
		t.Errorf("without python3: %+v", c)
	}
	for script, want := range map[string]check{
		"echo no GPU >&2; exit 77": {Status: absent, Text: "no GPU"},
		`echo PyTorch 2.9; [ "$1" = -c ] && echo "Benchmark$3 1 5 ns/op"`: {Status: passed, Text: "PyTorch 2.9, 1 figures",
			Figures: []figure{{"A/1", map[string]float64{"ns/op": 5}}}},
	} {
		if err := os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		got := f.check(t.Context(), last, []string{"A/1"})
		want.Name, want.Seconds = torchPart, got.Seconds
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// All parts end within the time of a run.
func TestLimits(t *testing.T) {
	sum := 30 * time.Second // to open the GPU, and for nvidia-smi
	for _, p := range parts {
		sum += p.limit
	}
	if sum > whole || whole >= 5*time.Minute {
		t.Errorf("the parts may take %v, a run %v", sum, whole)
	}
}

// Without a driver, or with a wrong command line, the program says so in one line.
func TestNoDriver(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"there is no GPU to check: ": {"-out", t.TempDir()}, "there is no such folder": {"-out", "/absent"}, `"words" is unknown`: {"words"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, own, args...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "PLX_CUDA=libabsent.so.7")
		text, err := cmd.CombinedOutput()
		cancel()
		if err == nil || err.Error() != "exit status 2" || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) ||
			args[0] == "-out" && args[1] != "/absent" && !strings.Contains(string(text), "libabsent.so.7") {
			t.Errorf("%v: %v\n%s", args, err, text)
		}
	}
}
