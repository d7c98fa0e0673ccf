package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// version is set by scripts/make-gpu-check.
var version = "unknown"

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2 // or no GPU
)

func main() {
	quick := flag.Bool("quick", false, "small sizes: a first look, or a stand-in for a GPU")
	out := flag.String("out", ".", "`folder` for gpu-check.json and gpu-check.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := start(ctx, *quick, *out, flag.Args())
	switch {
	case err == nil:
		return
	case errors.Is(err, errFailed):
		os.Exit(exitFailed)
	}
	fmt.Fprintf(os.Stderr, "gpu-check: %v\n", err)
	if errors.As(err, new(*noGPU)) || errors.As(err, new(usage)) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// usage is a mistake of the command line.
type usage string

func (u usage) Error() string { return string(u) }

// errFailed is the verdict of a run that has reported its failed parts.
var errFailed = errors.New("a part has failed")

// start runs all parts, or as a child process one piece of one.
func start(ctx context.Context, quick bool, out string, args []string) error {
	switch {
	case len(args) == 0:
		return runAll(ctx, quick, out)
	case len(args) == 2 && args[0] == "piece":
		return piece(os.Stdout, args[1], quick)
	}
	return usage(fmt.Sprintf("%q is unknown: the program takes the flags -quick and -out", args[0]))
}

// runAll runs all parts and writes the record.
func runAll(ctx context.Context, quick bool, out string) error {
	if info, err := os.Stat(out); err != nil || !info.IsDir() {
		return usage(fmt.Sprintf("-out %s: there is no such folder: make it first", out))
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := openFolder(program, quick)
	if err != nil {
		return err
	}
	r, err := f.run(ctx, os.Stdout)
	if err := errors.Join(err, f.close()); err != nil {
		return err
	}
	if err := r.save(out); err != nil {
		return err
	}
	fmt.Printf("the record is in %s\n", filepath.Join(out, "gpu-check.json"))
	if !r.ok() {
		return errFailed
	}
	return nil
}

// piece does what needs a process of its own. It prints a line of JSON for each
// figure, at once, so that a later failure leaves it.
func piece(w io.Writer, what string, quick bool) error {
	b, err := openBench(quick)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(w)
	switch what {
	case "gpu":
		info, err := b.gpu.Info()
		if err != nil {
			return err
		}
		return lines.Encode(info)
	case "sizes":
		return each(lines, b, sizes(quick), measureSize)
	case "moves":
		return each(lines, b, moves(quick), measureMove)
	}
	return usage(fmt.Sprintf("%q is no piece of a run", what))
}

// each measures all work.
func each(lines *json.Encoder, b *bench, all []work, measure func(*bench, work) figure) error {
	for _, w := range all {
		f := measure(b, w)
		if b.err == nil {
			b.do(func() error { return lines.Encode(f) })
		}
		if b.clear(); b.err != nil {
			return fmt.Errorf("%s: %w", w.What, b.err)
		}
	}
	return nil
}
