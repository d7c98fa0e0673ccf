// Sparse measures how fast a language model with two large tables trains when
// the hosts' links are slow: under a plain parameter server, an all-reduce of
// dense gradients, PyTorch's DistributedDataParallel with dense and with sparse
// gradients, and plx as it is by default. All of them run in one go, one after
// the other in each round, on hosts of package testhosts whose links the kernel
// limits:
//
//	make bench-sparse                                  # two hours: docs/benchmarks.md and docs/benchmarks/
//	make bench-partitions                              # every number of partitions, and what the search chose
//	scripts/tool internal/tools/bench/sparse --quick --out DIR   # a minute: does it work?
//	scripts/tool internal/tools/bench/sparse --render            # write tables and plots from the samples again
//
// It needs root, Linux, and the packages that scripts/install-test-tools names.
// It refuses to be kind: every sample is kept, a run that fails is shown as
// failed, and a ratio over a system that has not had a fair chance, by the
// formula for its own traffic, is marked void.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/test/measured"
)

func main() {
	if len(os.Args) > 1 && slices.Contains([]string{receiving, sending}, os.Args[1]) {
		exit(tool(os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures what the arguments say and writes it down.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if s.render {
		r := &Results{}
		if err := measured.Load(s.file(), r); err != nil {
			return err
		}
		return r.write(s, stdout)
	}
	r := &Results{Mode: s.mode, Model: s.model, Machine: describeMachine(s.root, command(args))}
	if r.Rows, err = countRows(s.model); err != nil {
		return err
	}
	b, err := openBench(s, r, stderr)
	if err != nil {
		return err
	}
	err = b.all(ctx)
	if err = errors.Join(err, b.close()); err != nil {
		return err
	}
	return errors.Join(r.write(s, stdout), r.failures())
}

// command is what repeats this run. Where its output went is nobody's business.
func command(args []string) string {
	args = slices.Clone(args)
	if i := slices.IndexFunc(args, func(a string) bool { return flagName(a) == "logs" }); i >= 0 {
		args = slices.Delete(args, i, min(i+2, len(args)))
	}
	target := "make bench-" + comparing
	if len(args) > 0 && args[0] == partitioning {
		target, args = "make bench-"+partitioning, args[1:]
	}
	if len(args) == 0 {
		return target
	}
	return fmt.Sprintf("%s ARGS=%q", target, strings.Join(args, " "))
}
