package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// model is a model that an example of plx and torch_step.py both train.
type model struct {
	name  string
	batch int      // number of rows of a step's batch, for all workers together
	steps int      // number of the last timed step
	every int      // number of steps between two printed lines; the first line ends the warm-up
	plx   []string // flags of the example program of plx
	peer  []string // flags of torch_step.py
	goals [3]float64
}

// workers lists the numbers of workers that are measured. The goals of a model
// have the same order.
var workers = [3]int{1, 2, 4}

// models lists the models. Each trains for a few seconds. The example mlp
// computes the loss of 1,000 test samples for each printed line, which is once
// in the 800 timed steps. The time of mlp includes this.
var models = []model{
	{name: "mlp", batch: 64, steps: 1600, every: 800, plx: []string{"--niters=1601", "--report-every=800"}, goals: [3]float64{0.6, 0.5, 0.35}},
	{name: "cifar", batch: 32, steps: 160, every: 10, plx: []string{"--steps=161"}, goals: [3]float64{1, 1, 1}},
	{name: "lm", batch: 32, steps: 300, every: 50, plx: []string{"--steps=301", "--every=50"}, peer: []string{"--sparse"}, goals: [3]float64{1, 1, 1}},
}

// cores lists the values of OPENBLAS_CORETYPE with which plx and PyTorch are
// measured, and the names of these values in the table.
var cores = []struct{ name, value string }{{"OpenBLAS as it comes", ""}, {"AVX2 kernels (Haswell)", "Haswell"}}

// steps returns the lines (rows of the result table) that time training steps,
// with one and with several workers on the local machine.
func steps(ctx context.Context, b *bench) (all []line, err error) {
	script, err := filepath.Abs("internal/tools/bench/suite/torch_step.py")
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		program := filepath.Join(b.scratch, m.name)
		if err := measured.Build(ctx, program, "./examples/"+m.name); err != nil {
			return nil, err
		}
		plx := append([]string{program, fmt.Sprint("--batch-size=", m.batch)}, m.plx...)
		peer := append([]string{"/usr/bin/python3", script, m.name, fmt.Sprint("--batch-size=", m.batch), fmt.Sprint("--steps=", m.steps+1),
			fmt.Sprint("--every=", m.every)}, m.peer...)
		for i, n := range workers {
			for _, core := range cores {
				goal := m.goals[i]
				if core.value != "" && i == 0 && m.name == "mlp" {
					goal = 0.65
				}
				all = append(all, line{
					name: fmt.Sprintf("a step of %s, workers: %d, %s", m.name, n, core.name), goal: goal,
					plx:  way{name: "plx", measures: b.step(m, n, core.value, plx)},
					peer: way{name: "PyTorch", measures: b.step(m, n, core.value, peer)},
				})
			}
		}
	}
	return all, nil
}

// step returns a function that trains with the given number of workers on the
// local machine and returns the time of a step after the warm-up.
func (b *bench) step(m model, workers int, core string, program []string) func(context.Context) (time.Duration, error) {
	args := []string{"launch", "--local", fmt.Sprint("1x", workers), "--ps", "none", "--env", "OPENBLAS_NUM_THREADS=1", "--env", "OMP_NUM_THREADS=1"}
	if core != "" {
		args = append(args, "--env", "OPENBLAS_CORETYPE="+core)
	}
	return func(ctx context.Context) (time.Duration, error) {
		cmd := command(ctx, b.plx, append(args, program...)...)
		cmd.Dir = b.scratch
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "OPENBLAS_") { // leave out variables that would override the choice of kernels
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "HOME="+b.scratch)
		return timed(cmd, m.every, m.steps)
	}
}

var stepLine = regexp.MustCompile(`\bstep (\d+) \|`)

// timed runs a training and returns the time of one step. It measures the time
// between the lines that the program prints for the steps with the numbers
// first and last.
func timed(cmd *exec.Cmd, first, last int) (time.Duration, error) {
	var begun time.Time
	var took time.Duration
	err := measured.Follow(cmd, func(line string) (bool, error) {
		if found := stepLine.FindStringSubmatch(line); found != nil {
			switch step, _ := strconv.Atoi(found[1]); { // no error, because the pattern matches only digits
			case step == first:
				begun = time.Now()
			case step == last && !begun.IsZero():
				took = time.Since(begun)
			}
		}
		return false, nil
	})
	if err != nil {
		return 0, err
	}
	if took == 0 {
		return 0, fmt.Errorf("%s printed no lines for the steps %d and %d", cmd.Args, first, last)
	}
	return took / time.Duration(last-first), nil
}
