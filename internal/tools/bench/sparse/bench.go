package main

import (
	"bytes"
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

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/measured"
	"github.com/plx-run/plx/internal/test/testhosts"
)

//go:embed ddp_lm.py
var ddp []byte

// bench is the hosts and the programs that run on them.
type bench struct {
	*settings
	results     *Results
	tried       []system
	cluster     *testhosts.Cluster
	files       map[int]string // resource file of so many hosts
	known       map[string]bool
	plx, lm     string
	python, dir string
	stderr      io.Writer
}

// openBench builds the programs and starts the hosts. The caller closes it.
func openBench(s *settings, r *Results, stderr io.Writer) (b *bench, err error) {
	b = &bench{settings: s, results: r, plx: s.plx, lm: s.lm, files: map[int]string{}, stderr: stderr}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.tried, err = s.systems(); err != nil {
		return b, err
	}
	if b.dir, err = os.MkdirTemp("", "plx-bench-"); err != nil {
		return b, err
	}
	if err := b.build(); err != nil {
		return b, err
	}
	if err := b.ask(); err != nil {
		return b, err
	}
	if b.cluster, err = testhosts.Open(testhosts.Options{Hosts: max(2, slices.Max(s.hosts))}, testhosts.ReportTo(stderr)); err != nil {
		return b, err
	}
	for _, n := range s.hosts {
		var lines []string
		for _, h := range b.cluster.Hosts[:n] {
			lines = append(lines, h.Name+": cpu")
		}
		b.files[n] = b.cluster.ResourceFile(lines...)
	}
	for _, h := range b.cluster.Hosts[:2] {
		if err := installTool(h); err != nil {
			return b, err
		}
	}
	return b, nil
}

// build makes the programs that are not given.
func (b *bench) build() error {
	for _, p := range []struct {
		to  *string
		pkg string
	}{{&b.plx, "."}, {&b.lm, "./examples/lm"}} {
		if *p.to != "" {
			continue
		}
		*p.to = filepath.Join(b.dir, "plx")
		if p.pkg != "." {
			*p.to = filepath.Join(b.dir, filepath.Base(p.pkg))
		}
		cmd := exec.Command("go", "build", "-trimpath", "-o", *p.to, p.pkg)
		cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", p.pkg, err, out)
		}
	}
	b.python = filepath.Join(b.dir, "ddp_lm.py")
	if b.logs != "" {
		if err := os.MkdirAll(b.logs, 0o755); err != nil {
			return err
		}
	}
	return executable.Write(b.python, ddp, 0o755)
}

// ask learns which flags lm has, and whether PyTorch is there.
func (b *bench) ask() error {
	help, _ := exec.Command(b.lm, "--help").CombinedOutput() // its status is that of a mistake
	b.known = flagsOf(string(help))
	for _, needed := range []string{"dense", "every", "arch"} {
		if !b.known[needed] {
			return fmt.Errorf("%s has no flag --%s: %.300s", b.lm, needed, help)
		}
	}
	for _, x := range b.tried {
		_, no := x.granted(b.known)
		for _, wish := range no {
			fmt.Fprintf(b.stderr, "%s: left out %s, which this plx does not have\n", x.name, wish)
			b.results.LeftOut = append(b.results.LeftOut, x.name+" "+wish)
		}
		if x.torch {
			if out, err := exec.Command("/usr/bin/python3", "-c", "import torch").CombinedOutput(); err != nil {
				return fmt.Errorf("needs Debian's python3-torch: %w: %s", err, bytes.TrimSpace(out))
			}
		}
	}
	for _, needed := range []string{"partitions", "search-partitions"} {
		if b.mode == partitioning && !b.known[needed] {
			return fmt.Errorf("this plx has no --%s", needed)
		}
	}
	return nil
}

// all measures everything, round by round, and keeps the samples after each
// run.
func (b *bench) all(ctx context.Context) error {
	for round := 1; round <= b.rounds; round++ {
		for _, rate := range b.rates {
			if err := b.shape(ctx, rate, round); err != nil {
				return err
			}
			for _, hosts := range b.hosts {
				for _, x := range b.tried {
					if err := b.one(ctx, x, hosts, rate, round); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// shape limits all links, and the first time measures them.
func (b *bench) shape(ctx context.Context, rate string, round int) error {
	for _, h := range b.cluster.Hosts {
		h.Shape(rate)
	}
	if round > 1 {
		return nil
	}
	raw, err := measureRaw(ctx, b.cluster.Hosts[0], b.cluster.Hosts[1], rate, b.raw)
	if err != nil {
		return fmt.Errorf("measure the links: %w", err)
	}
	b.results.Raw = append(b.results.Raw, raw)
	fmt.Fprintf(b.stderr, "links of %s: TCP carries %s one way, %s and %s both ways at once; %s are left by the headers\n",
		rate, megabytes(raw.One), megabytes(raw.There), megabytes(raw.Back), megabytes(raw.Net))
	return nil
}

func (b *bench) one(ctx context.Context, x system, hosts int, rate string, round int) error {
	r := b.measure(ctx, x, hosts, rate, round)
	if err := ctx.Err(); err != nil {
		return err
	}
	b.results.Runs = append(b.results.Runs, r)
	where := fmt.Sprintf("round %d, %s, %s, %s", round, rate, counted(hosts), x.name)
	if r.Failed != "" {
		fmt.Fprintf(b.stderr, "%s: failed: %s\n", where, r.Failed)
	} else {
		fmt.Fprintf(b.stderr, "%s: %.0f words/s, %.4g ms a step, %d steps from %d, %.2f MB a step on the busiest link, %.1f cores busy\n",
			where, r.Words, r.StepMillis(), len(r.Millis), r.First, r.Link/1e6, r.Cores)
	}
	idle, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, h := range b.cluster.Hosts[:hosts] {
		if err := h.AwaitIdle(idle); err != nil {
			return err
		}
	}
	return measured.Save(b.file(), b.results)
}

func (b *bench) close() error {
	var err error
	if b.cluster != nil {
		err = b.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

func megabytes(perSecond float64) string { return fmt.Sprintf("%.1f MB/s", perSecond/1e6) }

func counted(hosts int) string {
	if hosts == 1 {
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", hosts)
}
