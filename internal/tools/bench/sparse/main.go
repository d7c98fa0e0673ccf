// Sparse measures how fast a language model with two large embedding tables
// trains over slow links. It compares five systems: a plain parameter server,
// an all-reduce of dense gradients, PyTorch's DistributedDataParallel with
// dense and with sparse gradients, and plx with its defaults. Each round runs
// all of them one after the other, on test hosts (package testhosts) whose
// links the kernel limits:
//
//	make bench-sparse                                  # two hours: docs/benchmarks.md and docs/benchmarks/
//	make bench-partitions                              # every number of partitions, and what the search chose
//	scripts/tool internal/tools/bench/sparse --quick --out DIR   # a minute: does it work?
//	scripts/tool internal/tools/bench/sparse --render            # write tables and plots from the samples again
//
// It needs root, Linux, and the packages that scripts/install-test-tools
// names. It keeps every run and reports failed runs as failed.
//
// For each system, a formula gives the shortest possible time of a step from
// the system's traffic. A comparison with a system that is far slower than its
// formula allows is marked void, because the comparison would be unfair to
// that system.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// The two modes of the program: compare the systems, or compare numbers of
// partitions.
const (
	comparing    = "sparse"
	partitioning = "partitions"
)

// settings are the program's flags.
type settings struct {
	mode         string
	model        modelSettings
	hosts, parts []int
	rates        []string
	only         []string // names of the systems to measure; empty means all systems
	rounds       int
	steps        int           // maximum number of measured steps of a run
	window       time.Duration // time for which a run is measured
	settle       int           // number of warm-up steps of a system that moves variables between servers
	limit        time.Duration // timeout of a run
	raw          float64       // seconds for which the throughput of TCP is measured
	quick        bool
	render       bool
	out          string
	plx, lm      string // paths of existing programs plx and examples/lm; "" means that the benchmark builds the program
	logs         string // folder for the output of each run; "" means that the output is not kept
}

// modelSettings holds the sizes of the language model and of a worker's batch.
type modelSettings struct {
	Vocabulary, Width, Hidden, Length int
	Batch, Samples                    int // Batch is the number of text rows per worker, Samples the number of words sampled for each worker's softmax
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs the benchmark that the arguments select, and writes tables and
// plots.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var samples measured.Samples
	var failed error
	if s.render {
		samples, err = measured.Load(s.file())
	} else {
		samples, failed, err = s.measure(ctx, command(args), stderr)
	}
	if err != nil {
		return err
	}
	r := report{s.mode, samples}
	part := r.markdown()
	_, err = io.WriteString(stdout, part)
	return errors.Join(err, measured.Insert(filepath.Join(s.out, "benchmarks.md"), s.mode, part), r.plots(filepath.Join(s.out, "benchmarks")), failed)
}

// file is the path of the file with the samples.
func (s *settings) file() string { return filepath.Join(s.out, "benchmarks", s.mode+".txt") }

// command returns the make command that repeats this run. It leaves out the
// flag --logs, which names a local folder.
func command(args []string) string {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.TrimLeft(a, "-") == "logs" }); i >= 0 {
		args = slices.Delete(slices.Clone(args), i, min(i+2, len(args)))
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

// parse parses the command line: an optional mode (the default is comparing),
// then flags.
func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{mode: comparing, hosts: []int{1, 2, 4, 8}, parts: []int{1, 2, 4, 8, 16}, rates: []string{"100mbit", "1gbit"}, rounds: 3,
		steps: 200, window: 20 * time.Second, settle: 200, limit: 15 * time.Minute, raw: 3, out: "docs",
		model: modelSettings{Vocabulary: 100_000, Width: 128, Hidden: 128, Length: 20, Batch: 22, Samples: 1408}}
	if len(args) > 0 && args[0] == partitioning {
		s.mode, s.hosts, args = partitioning, []int{8}, args[1:]
	}
	if slices.ContainsFunc(args, func(a string) bool { return strings.TrimLeft(a, "-") == "quick" }) { // --quick changes the defaults of other flags; explicit flags override these defaults
		s.hosts, s.parts, s.rates, s.rounds = []int{2}, []int{1, 2}, []string{"1gbit"}, 1
		s.steps, s.window, s.settle, s.limit, s.raw = 5, time.Second, 5, time.Minute, 0.2
		s.model = modelSettings{Vocabulary: 2000, Width: 16, Hidden: 16, Length: 5, Batch: 4, Samples: 32}
	}
	f := flag.NewFlagSet(s.mode, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("hosts", "numbers of `hosts` (default 1,2,4,8; partitions: 8)", numbers(&s.hosts))
	f.Func("partitions", "numbers of `partitions` to try (default 1,2,4,8,16)", numbers(&s.parts))
	f.Func("rates", "`rates` of the links, as tc writes them (default 100mbit,1gbit)", names(&s.rates))
	f.Func("only", "`systems` to measure, by their short names (default all)", names(&s.only))
	whole := map[*int]int{} // whole maps the variable of each integer flag to the smallest allowed value
	for _, n := range []struct {
		to          *int
		least       int
		name, usage string
	}{
		{&s.rounds, 1, "rounds", "`times` that everything is measured"},
		{&s.model.Vocabulary, 2, "vocabulary", "`words`"},
		{&s.model.Width, 1, "width", "`elements` of a word's vector"},
		{&s.model.Hidden, 1, "hidden", "`cells` of the LSTM"},
		{&s.model.Length, 1, "length", "`words` that gradients go back"},
		{&s.model.Batch, 1, "batch", "`rows` of text of each worker"},
		{&s.model.Samples, 1, "samples", "`samples` of each worker's softmax, at most half of the vocabulary"},
		{&s.steps, 3, "steps", "`steps` of a run that count, at most"},
		{&s.settle, 1, "settle", "`steps` that plx is given to place its variables before it is measured"},
	} {
		f.IntVar(n.to, n.name, *n.to, n.usage)
		whole[n.to] = n.least
	}
	f.DurationVar(&s.window, "window", s.window, "`time` that a run is measured; never less than three steps")
	f.DurationVar(&s.limit, "limit", s.limit, "`time` after which a run has failed")
	f.Float64Var(&s.raw, "raw-seconds", s.raw, "`seconds` for which TCP alone is measured on each rate")
	f.BoolVar(&s.quick, "quick", false, "a tiny model on two hosts, in less than a minute: numbers that say nothing")
	f.BoolVar(&s.render, "render", false, "measure nothing, write tables and plots from the samples")
	f.StringVar(&s.out, "out", s.out, "`folder` for benchmarks.md and benchmarks/")
	f.StringVar(&s.plx, "plx", "", "`program` instead of the plx that is built")
	f.StringVar(&s.lm, "lm", "", "`program` instead of the examples/lm that is built")
	f.StringVar(&s.logs, "logs", "", "`folder` for what every run prints")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q: want flags only, or first of all %s", f.Arg(0), partitioning)
	}
	for n, least := range whole {
		if *n < least {
			return nil, fmt.Errorf("%d: want at least %d", *n, least)
		}
	}
	if s.model.Vocabulary < 2*s.model.Samples || !(s.raw > 0) || s.window <= 0 || s.limit <= 0 {
		return nil, errors.New("want --vocabulary of at least twice the samples, and positive times")
	}
	_, err := s.systems()
	for _, rate := range s.rates {
		_, wrong := testhosts.ParseRate(rate)
		err = cmp.Or(err, wrong)
	}
	return s, err
}

func numbers(to *[]int) func(string) error {
	return func(list string) error {
		*to = nil
		for field := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 || n > 200 {
				return fmt.Errorf("%q: want numbers from 1 to 200", field)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

func names(to *[]string) func(string) error {
	return func(list string) error {
		*to = strings.Split(list, ",")
		return nil
	}
}
