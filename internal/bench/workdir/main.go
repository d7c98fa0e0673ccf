// Workdir measures how long plx launch --workdir takes to bring a folder to test
// hosts, beside rsync -a with the same excludes and a launch without a folder:
//
//	make bench-workdir                              # docs/benchmarks.md and docs/benchmarks/
//	go run ./internal/bench/workdir --quick --out DIR   # does it work?
//
// It needs root, Linux, and the packages that scripts/install-test-tools names. The
// three take turns in every round, and every sample is kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/measured"
	"github.com/plx-run/plx/internal/testhosts"
)

// settings are what the flags say.
type settings struct {
	hosts         []int // numbers of hosts that are measured
	files, rounds int
	size          int64  // bytes of all files
	out           string // folder of the page and of the samples
	plx           string // program; empty: it is built
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() (s settings, quick bool) {
	s.hosts = []int{1, 8}
	flag.Func("hosts", "numbers of hosts (default 1,8)", s.parseHosts)
	flag.IntVar(&s.files, "files", 5000, "number of files")
	flag.Int64Var(&s.size, "size", 100e6, "bytes of all files")
	flag.IntVar(&s.rounds, "rounds", 5, "number of rounds")
	flag.StringVar(&s.out, "out", "docs", "folder of the page and of the samples")
	flag.StringVar(&s.plx, "plx", "", "plx to measure; built if not given")
	flag.BoolVar(&quick, "quick", false, "two hosts, few files, one round: does it work?")
	flag.Parse()
	if quick {
		s.hosts, s.files, s.size, s.rounds = []int{2}, 50, 1e6, 1
	}
	return s, quick
}

func (s *settings) parseHosts(text string) error {
	s.hosts = nil
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of hosts", word)
		}
		s.hosts = append(s.hosts, n)
	}
	return nil
}

func run(ctx context.Context) error {
	s, quick := parse()
	root, err := measured.Root()
	if err != nil {
		return err
	}
	r := Results{Machine: measured.Describe(root, "make bench-workdir"), Rsync: firstLine(measured.Said("", "rsync", "--version")),
		Files: s.files, Bytes: s.size}
	if quick {
		r.Machine.Command = "a quick try, whose numbers say nothing"
	} else if err := r.Machine.Complete(); err != nil {
		return err
	}
	if s.plx == "" {
		scratch, err := os.MkdirTemp("", "plx-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(scratch) // the system clears its temporary folder
		s.plx = filepath.Join(scratch, "plx")
		if out, err := command(ctx, root, "go", "build", "-o", s.plx, ".").CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, out)
		}
	}
	cluster, err := testhosts.Open(testhosts.Options{Hosts: slices.Max(s.hosts)}, testhosts.ReportTo(os.Stderr))
	if err != nil {
		return err
	}
	b := &bench{settings: s, cluster: cluster}
	r.Counts, err = b.counts(ctx)
	if failed := cluster.Close(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	if err := measured.Save(filepath.Join(s.out, "benchmarks", "workdir.json"), r); err != nil {
		return err
	}
	return measured.Insert(filepath.Join(s.out, "benchmarks.md"), "Benchmarks", "workdir", r.table())
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.Join(strings.Fields(line), " ")
}
