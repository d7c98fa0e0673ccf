// Suite compares the speed of plx with that of alternative programs, on the
// same test hosts and in alternation:
//
//	make bench                      # docs/benchmarks.md and docs/benchmarks/suite.txt
//	make bench BENCH=logs           # one part
//	make bench-check                # fewer rounds; fails if a ratio is worse than recorded
//
// It needs root, Linux, and the packages that scripts/install-bench-peers
// names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// settings holds the values of the flags.
type settings struct {
	part   string // name of the only part to measure; "" means all parts
	rounds int
	out    string // folder for the page and the samples
	check  bool   // if true, compare with the recorded samples and record nothing
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var s settings
	flag.StringVar(&s.part, "part", "", "measure this part only: "+strings.Join(partNames(), ", "))
	flag.IntVar(&s.rounds, "rounds", 5, "number of rounds")
	flag.StringVar(&s.out, "out", "docs", "folder of the page and of the samples")
	flag.BoolVar(&s.check, "check", false, "fail if a ratio is worse than the recorded one by more than the noise of both; record nothing")
	flag.Parse()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part is a group of related lines (rows of the result table), which run on
// their own cluster of test hosts.
type part struct {
	name  string
	hosts int    // number of test hosts; 0 means that the part runs on the local machine only
	rate  string // rate limit of each host's link, in tc's notation; "" means no limit
	lines func(ctx context.Context, b *bench) ([]line, error)
}

var parts = []part{
	{"launch", 32, "", launches},
	{"sync", 8, "", syncs},
	{"spread", 32, "1gbit", spreads},
	{"logs", 8, "", logs},
	{"step", 0, "", steps},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, s settings) error {
	if s.part != "" && !slices.Contains(partNames(), s.part) {
		return fmt.Errorf("no part %q: there are %s", s.part, strings.Join(partNames(), ", "))
	}
	file := filepath.Join(s.out, "benchmarks", "suite.txt")
	recorded, err := measured.Load(file)
	if err != nil && (s.check || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	facts := measured.Facts(strings.TrimSpace("make bench BENCH=" + s.part))
	if slices.ContainsFunc(facts, func(f benchfmt.Config) bool { return f.Key == "commit" && string(f.Value) == "unknown" }) {
		return errors.New("git does not know the commit: run it in a clone of plx, not in a copy of its files")
	}
	scratch, err := os.MkdirTemp("", "plx-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) // if the removal fails, the system clears its temporary folder later
	plx := filepath.Join(scratch, "plx")
	if err := measured.Build(ctx, plx, ".", "-ldflags", "-s -w"); err != nil {
		return err
	}
	var now measured.Samples
	before := recorded
	for _, p := range parts {
		if s.part != "" && s.part != p.name {
			continue
		}
		samples, err := p.measure(ctx, s.rounds, facts, bench{plx: plx, scratch: scratch})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		now, recorded = append(now, samples...), replace(recorded, samples)
	}
	if s.check {
		return errors.Join(compare(ctx, scratch, before, now), check(before, now))
	}
	if err := recorded.Save(file); err != nil {
		return err
	}
	return measured.Insert(filepath.Join(s.out, "benchmarks.md"), "suite", table(recorded))
}

// measure starts the hosts of a part and measures all lines of the part in
// every round. It returns the samples grouped by line.
func (p part) measure(ctx context.Context, rounds int, facts []benchfmt.Config, with bench) (all measured.Samples, err error) {
	if p.hosts > 0 {
		if with.cluster, err = testhosts.Open(testhosts.Options{Hosts: p.hosts, Rate: p.rate}, testhosts.ReportTo(os.Stderr)); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, with.cluster.Close()) }()
	}
	lines, err := p.lines(ctx, &with)
	if err != nil {
		return nil, err
	}
	samples := make([]measured.Samples, len(lines))
	for round := range rounds {
		for i, l := range lines {
			plx, beyond, peer, err := l.times(ctx, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			s := l.sample(p.name, facts, plx, beyond, peer)
			fmt.Fprintf(os.Stderr, "%s, %s, round %d of %d: %v\n", p.name, l.name, round+1, rounds, s.Values)
			samples[i] = append(samples[i], s)
		}
	}
	return slices.Concat(samples...), nil
}

// command returns a command that is killed when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
