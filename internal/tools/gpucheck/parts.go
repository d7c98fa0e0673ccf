package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// part is one check: a program to run, usually a test binary of plx.
type part struct {
	name    string
	limit   time.Duration
	program string // name of a program in the folder, or python
	args    []string
}

//go:embed torch.py
var torchScript string

const (
	torchPart    = "PyTorch"
	python       = "python3"
	statusAbsent = 77 // exit status of torch.py if PyTorch is missing or cannot use the GPU
)

// parts lists all parts, the most important first. The sum of their time
// limits is less than 5 minutes.
var parts = []part{
	{"binding without cgo", 15 * time.Second, "cuda.test", []string{"-test.skip=^TestFault"}},
	{"binding with cgo", 15 * time.Second, "cgocuda.test", nil},
	{"kernels against the CPU", 40 * time.Second, "kernels.test", nil},
	{"models against the CPU", 30 * time.Second, "executor.test", []string{"-test.run=^TestGPU(Zoo|Model)$"}},
	{"fault: illegal address", 4 * time.Second, "cuda.test", []string{"-test.run=^TestFaultIllegalAddress$"}},
	{"a new process after it", 4 * time.Second, "cuda.test", []string{"-test.run=^TestSuite$/^launch$"}},
	{"fault: endless work", 6 * time.Second, "cuda.test", []string{"-test.run=^TestFaultEndlessWork$"}},
	{"a new process after that", 4 * time.Second, "cuda.test", []string{"-test.run=^TestSuite$/^launch$"}},
	{"example linear", 10 * time.Second, "examples.test", []string{"-test.run=^TestGPU$/^linear$"}},
	{"example mlp", 15 * time.Second, "examples.test", []string{"-test.run=^TestGPU$/^mlp$"}},
	{"example mnist", 20 * time.Second, "examples.test", []string{"-test.run=^TestGPU$/^mnist$"}},
	{"example cifar", 30 * time.Second, "examples.test", []string{"-test.run=^TestGPU$/^cifar$"}},
	{"copies and launches", 10 * time.Second, "kernels.test", []string{"-test.run=^$", "-test.bench=^BenchmarkMove$"}},
	{"products and convolutions", 30 * time.Second, "kernels.test", []string{"-test.run=^$", "-test.bench=^Benchmark(Product|Convolution)$"}},
	{torchPart, 30 * time.Second, python, []string{"-c", torchScript}},
}

// folder is the folder that make gpu-check has built. It contains this
// program, and other programs compressed as NAME.gz.
type folder struct {
	path  string
	temp  string // folder for decompressed programs and their output
	quick bool
}

func openFolder(path string, quick bool) (*folder, error) {
	temp, err := os.MkdirTemp(path, "unpacked-")
	if err != nil { // the folder may be on a read-only medium
		temp, err = os.MkdirTemp("", "gpu-check-")
	}
	return &folder{path, temp, quick}, err
}

// check runs the part p. measured lists the names of benchmarks that PyTorch
// should repeat; only the PyTorch part uses it.
func (f *folder) check(ctx context.Context, p part, measured []string) check {
	c, begin := check{Name: p.name, Status: failed}, time.Now()
	path, err := f.program(p.program)
	if err == nil && p.program == "examples.test" {
		_, err = f.program("examples") // TestExamples, which this part runs, starts the program examples
	}
	if errors.Is(err, errAbsent) || errors.Is(err, exec.ErrNotFound) {
		c.Status, c.Text = absent, oneLine(err.Error())
		return c
	}
	args := slices.Concat(p.args, measured)
	if p.program != python {
		args = slices.Concat(p.args, []string{"-test.v", "-test.benchtime=100ms"})
		if f.quick {
			args = slices.Concat(p.args, []string{"-test.v", "-test.benchtime=1x", "-test.short"})
		}
	}
	var out, errs string
	if err == nil {
		out, errs, err = f.exec(ctx, p.limit, path, args...)
	}
	c.Seconds = time.Since(begin).Seconds()
	count := c.read(out)
	var status *exec.ExitError
	switch {
	case p.program == python && errors.As(err, &status) && status.ExitCode() == statusAbsent:
		c.Status, c.Text = absent, oneLine(errs)
	case err != nil:
		c.Text, c.Output = oneLine(err.Error()), end(out+errs, 4<<10)
	case count["PASS"]+len(c.Figures) == 0:
		c.Text = "nothing was checked"
	case p.program == python:
		version, _, _ := strings.Cut(out, "\n")
		c.Status, c.Text = passed, fmt.Sprintf("%s, %d figures", oneLine(version), len(c.Figures))
	default:
		c.Status, c.Text = passed, fmt.Sprintf("%d tests passed, %d skipped, %d figures", count["PASS"], count["SKIP"], len(c.Figures))
	}
	return c
}

// errAbsent means that the folder lacks a program that a part needs.
var errAbsent = errors.New("not checked")

// program decompresses a program, if necessary, and returns its path.
func (f *folder) program(name string) (string, error) {
	if name == python {
		return exec.LookPath(name)
	}
	path := filepath.Join(f.temp, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	packed, err := os.Open(filepath.Join(f.path, name+".gz"))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("the folder was built without %s: %w", name, errAbsent)
	} else if err != nil {
		return "", err
	}
	defer packed.Close() // ignore the error: the file was only read
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", packed.Name(), err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", packed.Name(), err)
	}
	return path, os.WriteFile(path, text, 0o755)
}

// exec runs a process with one visible GPU and a timeout, after which it kills
// the process and its children.
func (f *folder) exec(ctx context.Context, limit time.Duration, path string, args ...string) (out, errs string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	visible, _, _ := strings.Cut(os.Getenv("CUDA_VISIBLE_DEVICES"), ",")
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="+cmp.Or(visible, "0"),
		"PLX_TEST_GPU=1", "PLX_EXAMPLES="+filepath.Join(f.temp, "examples"))
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.temp, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // a process that is blocked in the kernel does not end on SIGKILL: stop waiting for it after this time
	err = cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it did not end within %v", limit)
	}
	return stdout.String(), stderr.String(), err
}

// end returns the end of a text, with at most the given number of bytes.
func end(text string, most int) string { return text[max(0, len(text)-most):] }
