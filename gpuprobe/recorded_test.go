package gpuprobe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// recording is a file of testdata/recorded: facts for the fake nvidia-smi, and
// calls of the real nvidia-smi on some machine with their output.
type recording struct {
	path  string
	facts []string
	calls []call
}

type call struct {
	arguments []string
	output    string
	status    string // exit status; "?" if it is unknown
}

func recordings(t *testing.T) (all []recording) {
	t.Helper()
	paths, err := filepath.Glob("testdata/recorded/*.txt")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d recordings: %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		facts, calls, ok := strings.Cut(string(text), "\nrecorded\n\n$ nvidia-smi")
		if !ok {
			t.Fatalf("%s: nothing is recorded", path)
		}
		r := recording{path: path}
		for line := range strings.Lines(facts) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
				r.facts = append(r.facts, line)
			}
		}
		for _, block := range strings.Split(calls, "\n\n$ nvidia-smi") {
			r.calls = append(r.calls, readCall(t, path, block))
		}
		all = append(all, r)
	}
	return all
}

func readCall(t *testing.T, path, block string) call {
	t.Helper()
	first, rest, _ := strings.Cut(block, "\n")
	output, status, ok := strings.Cut(rest, "\n= ")
	if !ok {
		t.Fatalf("%s: %q has no status", path, first)
	}
	return call{strings.Fields(first), output + "\n", strings.TrimSpace(status)}
}

// standIn runs the stand-in.
func standIn(t *testing.T, facts string, arguments ...string) (output, status string) {
	t.Helper()
	c := exec.Command("testdata/nvidia-smi", arguments...)
	c.Env = append(os.Environ(), "PLX_FAKE_GPUS="+facts)
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), strconv.Itoa(c.ProcessState.ExitCode())
}

// asked reduces a recorded query to the fields that the fake nvidia-smi knows.
// It returns the arguments of that query and the output that the real tool
// printed for these fields.
func (c call) asked(t *testing.T, facts string) (arguments []string, want string) {
	t.Helper()
	at := slices.IndexFunc(c.arguments, func(a string) bool { return strings.HasPrefix(a, "--query-") })
	kind, list, _ := strings.Cut(c.arguments[at], "=")
	var known []string
	var columns []int
	for i, field := range strings.Split(list, ",") {
		if _, status := standIn(t, facts, kind+"="+field, "--format=csv"); status == "0" {
			known, columns = append(known, field), append(columns, i)
		}
	}
	for line := range strings.Lines(c.output) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), ", ")
		var kept []string
		for _, i := range columns {
			kept = append(kept, cells[i])
		}
		want += strings.Join(kept, ", ") + "\n"
	}
	for i, a := range c.arguments {
		switch {
		case i == at:
			arguments = append(arguments, kind+"="+strings.Join(known, ","))
		case strings.HasPrefix(a, "--format="):
			arguments = append(arguments, a)
		}
	}
	return arguments, want
}

// timestamp matches the line of the log that differs in every run.
var timestamp = regexp.MustCompile(`(?m)^Timestamp .*\n`)

// The fake nvidia-smi prints byte for byte what the real one printed.
func TestFakeToolPrintsRecordedOutput(t *testing.T) {
	compared := 0
	for _, r := range recordings(t) {
		for _, c := range r.calls {
			arguments, want := c.arguments, c.output
			line := strings.Join(c.arguments, " ")
			failed := c.status != "0" && c.status != "?" || len(r.facts) > 0 && slices.Contains([]string{"mode lost", "mode nodevices"}, r.facts[0])
			switch {
			case strings.Contains(line, "--query-") && failed:
			case strings.Contains(line, "--query-"):
				arguments, want = c.asked(t, r.path)
			case failed:
				arguments = []string{"--query-gpu=index", "--format=csv,noheader"}
			case line != "-L" && line != "--list-gpus" && line != "-q -d compute":
				continue // skip tables and logs that the fake nvidia-smi does not know
			}
			got, status := standIn(t, r.path, arguments...)
			got, want = timestamp.ReplaceAllString(got, ""), timestamp.ReplaceAllString(want, "")
			if got != want || c.status != "?" && status != c.status {
				t.Errorf("%s: %q: status %s\n%swant %s\n%s", r.path, arguments, status, got, c.status, want)
			}
			compared++
		}
	}
	if compared < 20 {
		t.Errorf("%d calls compared", compared)
	}
}

// Every fact of a recording occurs in the recorded output.
func TestFactsOccurInRecordedOutput(t *testing.T) {
	for _, r := range recordings(t) {
		var printed strings.Builder
		for _, c := range r.calls {
			printed.WriteString(c.output)
		}
		for _, fact := range r.facts {
			key, value, _ := strings.Cut(fact, " ")
			if key == "mode" {
				continue
			}
			for _, v := range strings.Split(value, "|") {
				// Some drivers and some outputs print the PCI domain with four
				// digits.
				if v != "[N/A]" && !strings.Contains(printed.String(), strings.TrimPrefix(v, "0000")) {
					t.Errorf("%s: %s: nobody has printed %q", r.path, fact, v)
				}
			}
		}
	}
}

// The script and its parser work on all recorded machines whose GPUs have an
// index.
func TestProbeOfRecordedMachines(t *testing.T) {
	var rows []Row
	for _, r := range recordings(t) {
		if !slices.ContainsFunc(r.facts, func(f string) bool { return strings.HasPrefix(f, "gpu 0|GPU-") }) {
			continue
		}
		text, err := os.ReadFile(r.path)
		if err != nil {
			t.Fatal(err)
		}
		report, err := probe(t.Context(), shell{"/bin/sh"}, machine(t, string(text)), Options{ToolTime: patience.Limit})
		if err != nil {
			t.Fatal(err)
		}
		report.CPUs, report.BLAS = 2, "" // this machine's
		rows = append(rows, Row{Host: strings.TrimSuffix(filepath.Base(r.path), ".txt"), Report: report})
	}
	compareTable(t, "testdata/recorded-table.txt", rows)
}
