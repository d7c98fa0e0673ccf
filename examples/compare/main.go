// Command compare shows the effect of a slow worker on each synchronisation
// mode. It launches examples/mlp once per mode, on given hosts or on an
// embedded cluster, and plots the test loss against steps and against time:
//
//	go run ./examples/compare --out docs
//
// The modes are those of the PALLAS group's guide to parallel training, and
// also bounded staleness and backup workers.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are the program's flags.
type settings struct {
	plx, hosts, modes, out string
	workers, steps, every  int
	slowBy                 time.Duration
	rate                   float64
}

func main() {
	var s settings
	flag.StringVar(&s.plx, "plx", "", "the plx `program` (default: built from this source)")
	flag.StringVar(&s.hosts, "hosts", "", "resource `file`; its last worker is the slow one (default an embedded cluster)")
	flag.StringVar(&s.modes, "modes", "sync,async,ssp:3,group:2,backup:1", "`modes` to compare")
	flag.IntVar(&s.workers, "workers", 4, "`workers` of the embedded cluster, or of --hosts")
	flag.IntVar(&s.steps, "steps", 300, "`steps` of every worker")
	flag.IntVar(&s.every, "every", 10, "`steps` between two points")
	flag.DurationVar(&s.slowBy, "slow-by", 50*time.Millisecond, "`time` that the slow worker wastes in each step")
	flag.Float64Var(&s.rate, "learning-rate", 0.1, "`rate` of the first step")
	flag.StringVar(&s.out, "out", ".", "`folder` for the plots")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(1)
	}
}

// run measures every mode and writes table and plots.
func (s *settings) run(ctx context.Context, table io.Writer) error {
	switch {
	case s.workers < 2:
		return fmt.Errorf("--workers is %d: want at least 2", s.workers)
	case s.every < 1:
		return fmt.Errorf("--every is %d: want at least 1", s.every)
	case s.steps <= s.every:
		return fmt.Errorf("--steps is %d: want more than --every, which is %d", s.steps, s.every)
	}
	folder, err := os.MkdirTemp("", "plx-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) // a folder that remains does no harm
	mlp := filepath.Join(folder, "mlp")
	if err := build(ctx, mlp, "./examples/mlp"); err != nil {
		return err
	}
	if s.plx == "" {
		s.plx = filepath.Join(folder, "plx")
		if err := build(ctx, s.plx, "."); err != nil {
			return err
		}
	}
	var curves []curve
	for mode := range strings.SplitSeq(s.modes, ",") {
		c, err := s.measure(ctx, mlp, mode)
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		curves = append(curves, c)
	}
	if err := s.tabulate(table, curves); err != nil {
		return err
	}
	return s.plot(curves)
}

func build(ctx context.Context, to, folder string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return nil
}

// measure launches one mode and reads what its chief prints.
func (s *settings) measure(ctx context.Context, mlp, mode string) (curve, error) {
	args := []string{"launch", "--color", "never", "--local", "1x" + strconv.Itoa(s.workers)}
	if s.hosts != "" {
		args = []string{"launch", "--color", "never", "--hosts", s.hosts}
	}
	args = append(args, mlp, "--arch=ps", "--sync="+mode, "--niters="+strconv.Itoa(s.steps),
		"--report-every="+strconv.Itoa(s.every), "--learning-rate="+strconv.FormatFloat(s.rate, 'g', -1, 64),
		"--slow-worker="+strconv.Itoa(s.workers-1), "--slow-by="+s.slowBy.String())
	cmd := exec.CommandContext(ctx, s.plx, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // plx ends the processes that it has started
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return curve{}, err
	}
	if err := cmd.Start(); err != nil {
		return curve{}, err
	}
	c, err := follow(mode, out)
	if waited := cmd.Wait(); waited != nil {
		return c, fmt.Errorf("%s %s: %w", s.plx, strings.Join(args, " "), waited)
	}
	return c, err
}
