// Suite measures plx beside the programs that one would use instead, all on the same
// test hosts and in turns:
//
//	make bench                      # docs/benchmarks.md and docs/benchmarks/suite.json
//	make bench BENCH=logs           # one part
//	make bench-check                # fewer rounds; fails if a ratio is worse than recorded
//
// It needs root, Linux, and the packages that scripts/install-bench-peers names.
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

	"github.com/plx-run/plx/internal/test/measured"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// settings are what the flags say.
type settings struct {
	part   string // the only part that is measured; empty: all
	rounds int
	out    string // folder of the page and of the samples
	check  bool   // compare with what is recorded, and record nothing
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

// part is a subject of the suite. Its hosts are made new.
type part struct {
	name  string
	hosts int    // 0: only this machine
	rate  string // of each host's link, as tc writes it; empty: no limit
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
	root, err := measured.Root()
	if err != nil {
		return err
	}
	recorded := Results{}
	file := filepath.Join(s.out, "benchmarks", "suite.json")
	if err := measured.Load(file, &recorded); err != nil && (s.check || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	machine := measured.Describe(root, strings.TrimSpace("make bench BENCH="+s.part))
	if err := machine.Complete(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "plx-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) // the system clears its temporary folder
	plx := filepath.Join(scratch, "plx")
	build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", plx, ".")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	now := Results{}
	for _, p := range parts {
		if s.part != "" && s.part != p.name {
			continue
		}
		samples, err := p.measure(ctx, s.rounds, bench{plx: plx, scratch: scratch})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		now.Parts = append(now.Parts, Part{Name: p.name, Machine: machine, Lines: samples})
	}
	if s.check {
		return recorded.check(now)
	}
	recorded.replace(now)
	if err := measured.Save(file, recorded); err != nil {
		return err
	}
	return measured.Insert(filepath.Join(s.out, "benchmarks.md"), "Benchmarks", "suite", recorded.table())
}

// measure starts the hosts of a part and measures its lines, all in every round.
func (p part) measure(ctx context.Context, rounds int, with bench) (all []Line, err error) {
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
	for _, l := range lines {
		all = append(all, Line{Name: l.name, Peer: l.peer.name, Goal: l.goal, Over: l.over, Unit: l.unit})
	}
	for round := range rounds {
		for i, l := range lines {
			s, err := l.sample(ctx, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s, %s, round %d of %d: %+v\n", p.name, l.name, round+1, rounds, s)
			all[i].Samples = append(all[i].Samples, s)
		}
	}
	return all, nil
}

// command returns a command that is ended with ctx.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
