// Command compare shows the effect of a slow worker on each synchronisation
// mode. It runs examples/mlp once per mode, on given hosts or on processes of
// this machine, and plots the test loss against steps and against time:
//
//	scripts/tool internal/tools/compare --out docs
//
// The modes are those of the PALLAS group's guide to parallel training, plus
// bounded staleness and backup workers.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// settings are the program's flags.
type settings struct {
	plx, hosts, modes, out string
	workers, steps, every  int
	slowBy                 time.Duration
	rate                   float64
}

// atLeast returns an error if the value of a flag is less than least.
func atLeast(name string, value, least int) error {
	if value < least {
		return fmt.Errorf("--%s is %d: want at least %d", name, value, least)
	}
	return nil
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

// run measures every mode, and writes the table and the plots.
func (s *settings) run(ctx context.Context, stdout io.Writer) error {
	err := cmp.Or(atLeast("workers", s.workers, 2), atLeast("every", s.every, 1), atLeast("steps", s.steps, s.every+1))
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "plx-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) // the error is ignored: a leftover folder does no harm
	mlp := filepath.Join(folder, "mlp")
	if err := measured.Build(ctx, mlp, "./examples/mlp"); err != nil {
		return err
	}
	if s.plx == "" {
		s.plx = filepath.Join(folder, "plx")
		if err := measured.Build(ctx, s.plx, "."); err != nil {
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
	_, err = io.WriteString(stdout, table(curves))
	return errors.Join(err, s.plot(curves))
}

// measure runs the example in one mode and returns the test loss during the
// run.
func (s *settings) measure(ctx context.Context, mlp, mode string) (curve, error) {
	args := []string{"launch", "--color", "never", "--local", "1x" + strconv.Itoa(s.workers)}
	if s.hosts != "" {
		args = []string{"launch", "--color", "never", "--hosts", s.hosts}
	}
	args = append(args, mlp, "--arch=ps", "--sync="+mode, "--niters="+strconv.Itoa(s.steps),
		"--report-every="+strconv.Itoa(s.every), "--learning-rate="+strconv.FormatFloat(s.rate, 'g', -1, 64),
		"--slow-worker="+strconv.Itoa(s.workers-1), "--slow-by="+s.slowBy.String())
	cmd := exec.CommandContext(ctx, s.plx, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // plx stops its processes on an interrupt
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	return follow(mode, cmd)
}

// curve is the test loss of one run, as samples that the chief (worker 0)
// printed. Times are in seconds since the first sample.
type curve struct {
	mode                 string
	steps, seconds, loss []float64
	ended                time.Duration // time from the chief's first line to the end of all workers
}

// line matches a line of the chief with a step and its test loss.
var line = regexp.MustCompile(`step (\d+) \| train_loss [^|]* \| test_loss ([0-9]+\.[0-9]+|NaN|\+Inf) `)

// follow runs the command and collects the curve from the chief's output.
func follow(mode string, cmd *exec.Cmd) (curve, error) {
	c := curve{mode: mode}
	var begin time.Time
	err := measured.Follow(cmd, func(text string) (bool, error) {
		found := line.FindStringSubmatch(text)
		if found == nil {
			return false, nil
		}
		step, _ := strconv.ParseFloat(found[1], 64) // the error is impossible: the pattern matches only digits
		loss, _ := strconv.ParseFloat(found[2], 64)
		if begin.IsZero() {
			begin = time.Now()
		}
		c.steps, c.loss, c.seconds = append(c.steps, step), append(c.loss, loss), append(c.seconds, time.Since(begin).Seconds())
		return false, nil
	})
	if err != nil {
		return c, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	if len(c.steps) < 2 {
		return c, errors.New("the chief printed too little to draw a curve")
	}
	c.ended = time.Since(begin)
	return c, nil
}

// until returns the time at which the test loss first was at most bound.
func (c curve) until(bound float64) (seconds float64, ok bool) {
	if i := slices.IndexFunc(c.loss, func(loss float64) bool { return loss <= bound }); i >= 0 {
		return c.seconds[i], true
	}
	return 0, false
}

// table returns a Markdown table of the modes. Its last column is the time to
// reach a test loss that all modes have reached: the largest of their final
// losses.
func table(curves []curve) string {
	bound := 0.0
	for _, c := range curves {
		bound = max(bound, c.loss[len(c.loss)-1])
	}
	rows := [][]string{{"mode", "chief's steps at the last point", "last test loss", "seconds", fmt.Sprintf("until loss %.3f", bound)}}
	for _, c := range curves {
		last := len(c.steps) - 1
		seconds, _ := c.until(bound) // ignore ok, which is always true: every mode reaches this bound
		rows = append(rows, []string{c.mode, fmt.Sprintf("%.0f", c.steps[last]+1), fmt.Sprintf("%.4f", c.loss[last]),
			fmt.Sprintf("%.1f", c.ended.Seconds()), fmt.Sprintf("%.1f s", seconds)})
	}
	return measured.Table(rows...)
}

// plot writes the plots of loss against steps and against time.
func (s *settings) plot(curves []curve) error {
	title := fmt.Sprintf("%d workers, the last one slower by %v a step", s.workers, s.slowBy)
	var steps, seconds []any
	for _, c := range curves {
		steps = append(steps, c.mode, measured.Points(c.steps, c.loss))
		seconds = append(seconds, c.mode, measured.Points(c.seconds, c.loss))
	}
	return errors.Join(
		measured.Draw(filepath.Join(s.out, "synchronisation-steps.svg"), title, "the chief's step", "test loss", false, steps...),
		measured.Draw(filepath.Join(s.out, "synchronisation-time.svg"), title, "seconds", "test loss", false, seconds...))
}
