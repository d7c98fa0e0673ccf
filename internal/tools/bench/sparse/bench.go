package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/tools/bench/measured"
)

//go:embed ddp_lm.py
var ddp []byte

// bench holds the test hosts, the programs and the results of a benchmark run.
type bench struct {
	*settings
	cluster     *testhosts.Cluster
	files       map[int]string // maps a number of hosts to the path of a resource file that lists these hosts
	rows        Rows
	facts       []benchfmt.Config
	samples     measured.Samples
	failed      []error // errors of failed runs
	python, dir string
	stderr      io.Writer
}

// measure runs all measurements, one round after another, and saves the
// samples after each run. It returns the errors of failed runs as failed, and
// any other error as err.
func (s *settings) measure(ctx context.Context, command string, stderr io.Writer) (samples measured.Samples, failed, err error) {
	b := &bench{settings: s, files: map[int]string{}, facts: measured.Facts(command), stderr: stderr}
	systems, err := s.systems()
	if err != nil {
		return nil, nil, err
	}
	if b.dir, err = os.MkdirTemp("", "plx-bench-"); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := errors.Join(b.build(ctx), b.describe(systems)); err != nil {
		return nil, nil, err
	}
	if b.cluster, err = testhosts.Open(testhosts.Options{Hosts: max(2, slices.Max(s.hosts))}, testhosts.ReportTo(stderr)); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Close()) }()
	for _, n := range s.hosts {
		var lines []string
		for _, h := range b.cluster.Hosts[:n] {
			lines = append(lines, h.Name+": cpu")
		}
		b.files[n] = b.cluster.ResourceFile(lines...)
	}
	for round := range s.rounds {
		for _, rate := range s.rates {
			for _, h := range b.cluster.Hosts {
				h.Shape(rate)
			}
			if round == 0 {
				if err := b.link(ctx, rate); err != nil {
					return nil, nil, fmt.Errorf("measure the links: %w", err)
				}
			}
			for _, hosts := range s.hosts {
				for _, x := range systems {
					if err := b.one(ctx, x, hosts, rate, round); err != nil {
						return nil, nil, err
					}
				}
			}
		}
	}
	return b.samples, errors.Join(b.failed...), nil
}

// build builds plx and the program examples/lm, unless the flags name existing
// programs.
func (b *bench) build(ctx context.Context) error {
	var errs []error
	if b.plx == "" {
		b.plx = filepath.Join(b.dir, "plx")
		errs = append(errs, measured.Build(ctx, b.plx, "."))
	}
	if b.lm == "" {
		b.lm = filepath.Join(b.dir, "lm")
		errs = append(errs, measured.Build(ctx, b.lm, "./examples/lm"))
	}
	if b.logs != "" {
		errs = append(errs, os.MkdirAll(b.logs, 0o755))
	}
	b.python = filepath.Join(b.dir, "ddp_lm.py")
	return errors.Join(append(errs, executable.Write(b.python, ddp, 0o755))...)
}

// describe adds to b.facts the sizes of the model and the versions of PyTorch
// and OpenBLAS.
func (b *bench) describe(systems []system) (err error) {
	if b.rows, err = countRows(b.model); err != nil {
		return err
	}
	if slices.ContainsFunc(systems, func(x system) bool { return x.torch }) {
		if out, err := exec.Command("/usr/bin/python3", "-c", "import torch").CombinedOutput(); err != nil {
			return fmt.Errorf("needs Debian's python3-torch: %w: %s", err, out)
		}
	}
	version := func(pkg string) string { return measured.Said("dpkg-query", "-W", "-f", "${Version}", pkg) }
	m := b.model
	_, _, dense, all := m.sizes()
	b.facts = append(b.facts,
		measured.Fact("pytorch", version("python3-torch")), measured.Fact("openblas", version("libopenblas0-pthread")),
		measured.Fact("model", fmt.Sprintf("two tables of %d rows of %d and %d elements, LSTM of %d cells: %.1f MB, %.1f MB of them dense",
			m.Vocabulary, m.Width, m.Width+1, m.Hidden, all/1e6, dense/1e6)),
		measured.Fact("worker-step", fmt.Sprintf("%d rows of text of %d words, %d samples", m.Batch, m.Length, m.Samples)),
		measured.Fact("rows", fmt.Sprintf("a worker's step touches %.0f of the words' table and %.0f of the softmax's, %.2f %% of all: %.2f MB",
			b.rows.Words, b.rows.Classes, 100*b.rows.Part, m.pushed(b.rows)/1e6)))
	return nil
}

// one makes one run of the system x (a method of training) and adds its
// measurements to the samples.
func (b *bench) one(ctx context.Context, x system, hosts int, rate string, round int) error {
	name := fmt.Sprintf("LM/system=%s/hosts=%d/rate=%s", x.key, hosts, rate)
	r, err := b.follow(ctx, x, hosts, fmt.Sprintf("%s-%dhosts-%s-round%d.log", rate, hosts, x.key, round+1))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	sample := &benchfmt.Result{Config: slices.Clone(b.facts), Name: []byte(name), Iters: max(1, len(r.window.millis))}
	if err != nil {
		b.failed = append(b.failed, fmt.Errorf("%s, round %d: %w", name, round+1, err))
		sample.Values = []benchfmt.Value{{Value: 1, Unit: "failed"}}
		fmt.Fprintln(b.stderr, b.failed[len(b.failed)-1])
	} else {
		bits, _ := testhosts.ParseRate(rate) // no error, because parse has checked the rate
		sample.Values = append(r.values(), x.formula(b.model, b.rows, float64(hosts), r.homes).values(netRate(bits))...)
		if r.choice > 0 {
			sample.Values = append(sample.Values, benchfmt.Value{Value: float64(r.choice), Unit: "P"})
			sample.Config = append(sample.Config, measured.Fact("said", r.said))
		}
		fmt.Fprintf(b.stderr, "%s, round %d: %d steps from %d: %v\n", name, round+1, len(r.window.millis), r.window.begin, sample.Values)
	}
	b.samples = append(b.samples, sample)
	idle, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, h := range b.cluster.Hosts[:hosts] {
		if err := h.AwaitIdle(idle); err != nil {
			return err
		}
	}
	return b.samples.Save(b.file())
}
