package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/plx-run/plx/trainer/plot"
)

// curve is a run of one mode: the test loss by the chief's step, and by the
// seconds since the chief's first line.
type curve struct {
	mode                 string
	steps, seconds, loss []float64
	ended                time.Duration // when all workers had ended
}

// line is what the chief prints.
var line = regexp.MustCompile(`step (\d+) \| train_loss [^|]* \| test_loss ([0-9.]+|NaN|\+Inf) `)

// follow reads a chief's lines as they arrive.
func follow(mode string, out io.Reader) (curve, error) {
	c := curve{mode: mode}
	var begin time.Time
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		found := line.FindStringSubmatch(scanner.Text())
		if found == nil {
			continue
		}
		step, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return c, err
		}
		loss, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return c, err
		}
		if begin.IsZero() {
			begin = time.Now()
		}
		c.steps, c.loss = append(c.steps, step), append(c.loss, loss)
		c.seconds = append(c.seconds, time.Since(begin).Seconds())
	}
	if !begin.IsZero() {
		c.ended = time.Since(begin)
	}
	if err := scanner.Err(); err != nil {
		return c, err
	}
	if len(c.steps) < 2 {
		return c, errors.New("the chief printed too little to draw a curve")
	}
	return c, nil
}

// until returns the seconds until the test loss first was at most bound.
func (c curve) until(bound float64) (seconds float64, ok bool) {
	for i, loss := range c.loss {
		if loss <= bound {
			return c.seconds[i], true
		}
	}
	return 0, false
}

// tabulate writes a Markdown table. Its bound is the largest last loss of all
// modes, which every mode has reached.
func (s *settings) tabulate(w io.Writer, curves []curve) error {
	bound := 0.0
	for _, c := range curves {
		bound = max(bound, c.loss[len(c.loss)-1])
	}
	_, err := fmt.Fprintf(w, "| mode | chief's steps at the last point | last test loss | seconds | until loss %.3f |\n|---|---|---|---|---|\n", bound)
	for _, c := range curves {
		last := len(c.steps) - 1
		seconds, _ := c.until(bound) // every mode reaches the bound
		if err == nil {
			_, err = fmt.Fprintf(w, "| %s | %.0f | %.4f | %.1f | %.1f s |\n", c.mode, c.steps[last]+1, c.loss[last], c.ended.Seconds(), seconds)
		}
	}
	return err
}

// plot writes the two plots.
func (s *settings) plot(curves []curve) error {
	title := fmt.Sprintf("%d workers, the last one slower by %v a step", s.workers, s.slowBy)
	steps, seconds := plot.New(title, "the chief's step", "test loss"), plot.New(title, "seconds", "test loss")
	for _, c := range curves {
		steps.Add(c.mode, c.steps, c.loss)
		seconds.Add(c.mode, c.seconds, c.loss)
	}
	return errors.Join(
		write(filepath.Join(s.out, "synchronisation-steps.svg"), steps),
		write(filepath.Join(s.out, "synchronisation-time.svg"), seconds))
}

func write(path string, p *plot.Plot) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.WriteSVG(f), f.Close())
}
