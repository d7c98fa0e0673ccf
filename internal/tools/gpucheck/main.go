package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// version is the version of plx's source; scripts/make-gpu-check sets it at
// link time.
var version = "unknown"

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2 // wrong command line, or no GPU
)

// whole is the timeout for all parts together.
const whole = 5*time.Minute - 3*time.Second

func main() {
	quick := flag.Bool("quick", false, "small sizes: a first look, or a stand-in for a GPU")
	out := flag.String("out", ".", "`folder` for gpu-check.json and gpu-check.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	var err error
	switch info, missing := os.Stat(*out); {
	case flag.NArg() == 1 && flag.Arg(0) == "gpu": // checkAll starts this program again, with the argument gpu
		err = tellGPU()
	case flag.NArg() > 0:
		err = usage(fmt.Sprintf("%q is unknown: the program takes the flags -quick and -out", flag.Arg(0)))
	case missing != nil || !info.IsDir():
		err = usage(fmt.Sprintf("-out %s: there is no such folder: make it first", *out))
	default:
		err = checkAll(ctx, *quick, *out)
	}
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "gpu-check: %v\n", err)
	if errors.As(err, new(usage)) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// usage is an error of the command line, or the absence of a GPU.
type usage string

func (u usage) Error() string { return string(u) }

// tellGPU prints, as JSON, information about the GPU that plx uses.
func tellGPU() error {
	gpu, err := cuda.Open(0)
	if err != nil {
		return err
	}
	info, err := gpu.Info()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(info)
}

// checkAll runs all parts one after the other and writes the record.
func checkAll(ctx context.Context, quick bool, out string) (err error) {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := openFolder(filepath.Dir(own), quick)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.temp)) }()
	r := &record{Format: 2, Plx: version, Kernels: kernels.Hash(), Begin: time.Now().UTC().Truncate(time.Second), Quick: quick}
	said, errs, err := f.exec(ctx, 10*time.Second, own, "gpu")
	if err != nil {
		return usage("there is no GPU to check: " + strings.TrimPrefix(cmp.Or(oneLine(errs), err.Error()), "gpu-check: "))
	}
	if err := json.Unmarshal([]byte(said), &r.GPU); err != nil {
		return fmt.Errorf("read %q: %w", said, err)
	}
	fmt.Printf("checking %s\n", r.GPU.Name)
	add := func(c check) {
		r.Checks = append(r.Checks, c)
		fmt.Printf("%-28s %s in %.0f s: %s\n%s", c.Name, c.Status, c.Seconds, c.Text, c.Output)
	}
	add(r.probe(ctx))
	for _, p := range parts {
		add(f.check(ctx, p, r.names()))
	}
	if err := r.save(out); err != nil {
		return err
	}
	fmt.Printf("the record is in %s\n", filepath.Join(out, "gpu-check.json"))
	for _, c := range r.Checks {
		if c.Status == failed {
			return errors.New("a part has failed")
		}
	}
	return nil
}

// probe records nvidia-smi's output and checks that gpuprobe finds a GPU in
// it.
func (r *record) probe(ctx context.Context) check {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, begin := check{Name: "nvidia-smi and gpuprobe", Status: failed}, time.Now()
	answer, err := gpuprobe.Local(ctx, gpuprobe.Options{})
	r.Answers = answer.Text
	report := answer.Report()
	switch {
	case err != nil:
		c.Text = oneLine(err.Error())
	case report.GPUTool == gpuprobe.ToolNone:
		c.Status, c.Text = absent, "this machine has no nvidia-smi"
	case report.GPUError != "" || len(report.GPUs) == 0:
		c.Text = oneLine(fmt.Sprintf("gpuprobe found %d GPUs: %s", len(report.GPUs), report.GPUError))
	default:
		c.Status, c.Text = passed, fmt.Sprintf("%d GPUs, driver %s", len(report.GPUs), report.Driver)
		for _, g := range report.GPUs {
			c.Text += fmt.Sprintf("; %d: %s, %d MiB, %s", g.Index, g.Name, g.MemoryTotalMiB, g.UsedBy())
		}
	}
	c.Seconds = time.Since(begin).Seconds()
	return c
}

// oneLine replaces all white space in a text by single spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
