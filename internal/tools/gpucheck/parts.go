package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// part is a part of the check. do returns one line about what it found. An error
// fails the part; with errAbsent the part counts as absent.
type part struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context, f *folder, r *record) (text string, err error)
}

// whole bounds a run.
const whole = 5*time.Minute - 3*time.Second

// parts are all parts, in an order in which what matters most comes first. Their
// limits fit into 5 minutes.
var parts = []part{
	{"nvidia-smi and gpuprobe", 20 * time.Second, probe},
	{"binding without cgo", 15 * time.Second, tests("cuda.test", "-test.skip=^TestFault")},
	{"binding with cgo", 15 * time.Second, tests("cgocuda.test", "-test.run=")},
	{"kernels against the CPU", 40 * time.Second, tests("kernels.test", "-test.run=")},
	{"models against the CPU", 30 * time.Second, tests("executor.test", "-test.run=^TestGPU(Zoo|Model)$")},
	{"fault: illegal address", 4 * time.Second, tests("cuda.test", "-test.run=^TestFaultIllegalAddress$")},
	{"a new process after it", 4 * time.Second, tests("cuda.test", "-test.run=^TestSuite$/^launch$")},
	{"fault: endless work", 6 * time.Second, tests("cuda.test", "-test.run=^TestFaultEndlessWork$")},
	{"a new process after that", 4 * time.Second, tests("cuda.test", "-test.run=^TestSuite$/^launch$")},
	{"example linear", 10 * time.Second, tests("examples.test", "-test.run=^TestGPU$/^linear$")},
	{"example mlp", 15 * time.Second, tests("examples.test", "-test.run=^TestGPU$/^mlp$")},
	{"example mnist", 20 * time.Second, tests("examples.test", "-test.run=^TestGPU$/^mnist$")},
	{"example cifar", 30 * time.Second, tests("examples.test", "-test.run=^TestGPU$/^cifar$")},
	{"copies and launches", 10 * time.Second, figures("moves")},
	{"products and convolutions", 30 * time.Second, figures("sizes")},
	{"PyTorch", 30 * time.Second, torch},
}

// noGPU says why there is nothing to check.
type noGPU struct{ err string }

func (e *noGPU) Error() string { return "there is no GPU to check: " + e.err }

// run runs all parts one after the other, and prints a line for each.
func (f *folder) run(ctx context.Context, w io.Writer) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	r := &record{Format: 1, Plx: version, Kernels: kernels.Hash(), Begin: time.Now().UTC().Truncate(time.Second), Quick: f.quick}
	if err := f.gpu(ctx, &r.GPU); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "checking %s\n", r.GPU.Name) // the record has it too
	for _, p := range parts {
		o := f.one(ctx, p, r)
		r.Parts = append(r.Parts, o)
		fmt.Fprintf(w, "%-28s %s in %.0f s: %s\n%s", p.name, o.Status, o.Seconds, o.Text, o.Output) // the record has it too
	}
	return r, nil
}

// gpu asks a process which GPU it opens.
func (f *folder) gpu(ctx context.Context, info *device.Info) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	e := f.exec(ctx, nil, f.own, f.args("gpu")...)
	if e.err != nil {
		said := strings.TrimPrefix(strings.Join(strings.Fields(e.all), " "), "gpu-check: ")
		if said == "" {
			said = e.err.Error()
		}
		return &noGPU{said}
	}
	return json.Unmarshal([]byte(e.out), info)
}

// args are those of this program for a piece.
func (f *folder) args(what string) []string {
	if f.quick {
		return []string{"-quick", "piece", what}
	}
	return []string{"piece", what}
}

// one runs a part.
func (f *folder) one(ctx context.Context, p part, r *record) outcome {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	begin, o := time.Now(), outcome{Part: p.name, Status: passed}
	text, err := p.do(ctx, f, r)
	var bad *failure
	switch {
	case errors.Is(err, errAbsent):
		o.Status, text = absent, err.Error()
	case errors.As(err, &bad):
		o.Status, text, o.Output = failed, bad.text, bad.output
	case err != nil:
		o.Status, text = failed, err.Error()
	}
	o.Text, o.Seconds = strings.Join(strings.Fields(text), " "), time.Since(begin).Seconds()
	return o
}

// failure is a process that failed.
type failure struct{ text, output string }

func (e *failure) Error() string { return e.text }

// failed is the failure of a process, nil if it did not fail.
func (e ended) failed(what string) error {
	if e.err == nil {
		return nil
	}
	return &failure{fmt.Sprintf("%s: %v", what, e.err), e.all}
}

// tests runs the tests of a packed program.
func tests(name, which string) func(context.Context, *folder, *record) (string, error) {
	return func(ctx context.Context, f *folder, _ *record) (string, error) {
		path, err := f.program(name)
		if err == nil && name == "examples.test" {
			_, err = f.program("examples") // that the test runs
		}
		if err != nil {
			return "", err
		}
		args := []string{"-test.v", which}
		if f.quick {
			args = append(args, "-test.short")
		}
		e := f.exec(ctx, nil, path, args...)
		if err := e.failed(name); err != nil {
			return "", err
		}
		return counted(e.out)
	}
}

// counted counts the tests in what a test program with -test.v prints.
func counted(out string) (string, error) {
	count := map[string]int{}
	for line := range strings.Lines(out) {
		if verdict, ok := strings.CutPrefix(strings.TrimSpace(line), "--- "); ok {
			verdict, _, _ = strings.Cut(verdict, ":")
			count[verdict]++
		}
	}
	if count["PASS"] == 0 {
		return "", errors.New("no test has run")
	}
	text := fmt.Sprintf("%d tests passed", count["PASS"])
	if n := count["SKIP"]; n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	return text, nil
}

// figures measures in a process of its own. What it measured before a failure is
// kept.
func figures(what string) func(context.Context, *folder, *record) (string, error) {
	return func(ctx context.Context, f *folder, r *record) (string, error) {
		e := f.exec(ctx, nil, f.own, f.args(what)...)
		n, err := r.add(e.out)
		if err := errors.Join(e.failed(what), err); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d measured", n), nil
	}
}
