package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// settings are the program's flags.
type settings struct {
	layers, dimIn, classes, dimHidden int
	trainSize, batchSize, iterations  int
	learningRate                      float64
	seed                              uint64
	save                              string
}

// parse reads the arguments. Asked for help it writes that to output and
// returns flag.ErrHelp.
func parse(arguments []string, output io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("mlp", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main reports mistakes
	f.IntVar(&s.layers, "n-layers", 4, "linear `layers`")
	f.IntVar(&s.dimIn, "dim-in", 1024, "`features` of a sample; half of them tell something")
	f.IntVar(&s.classes, "n-classes", 32, "`classes`, of 10 clusters each")
	f.IntVar(&s.dimHidden, "dim-hidden", 256, "`width` between the layers")
	f.IntVar(&s.trainSize, "train-size", 10000, "`samples` to train on; a tenth as many more are kept for the test")
	f.IntVar(&s.batchSize, "batch-size", 64, "`samples` of one step, over all workers together")
	f.Float64Var(&s.learningRate, "learning-rate", 0.1, "`rate` of the first step; it falls evenly to 0.3 of that")
	f.IntVar(&s.iterations, "niters", 1000, "`steps`")
	f.Uint64Var(&s.seed, "seed", 0, "`number` that data, order and first weights follow from")
	f.StringVar(&s.save, "save", "", "`file` for the chief to write the trained weights to")
	err := f.Parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(output, "usage: mlp [flags]") // nobody is left to be told of a broken output
		f.SetOutput(output)
		f.PrintDefaults()
	}
	if err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return s, s.check()
}

func (s settings) check() error {
	for _, c := range []struct {
		name  string
		value int
		least int
	}{
		{"n-layers", s.layers, 1}, {"dim-in", s.dimIn, 1}, {"n-classes", s.classes, 2},
		{"dim-hidden", s.dimHidden, 1}, {"train-size", s.trainSize, 1},
		{"batch-size", s.batchSize, 1}, {"niters", s.iterations, 0},
	} {
		if c.value < c.least {
			return fmt.Errorf("--%s is %d: want at least %d", c.name, c.value, c.least)
		}
	}
	if s.trainSize < s.batchSize {
		return fmt.Errorf("--train-size is %d: want at least one batch of %d", s.trainSize, s.batchSize)
	}
	if !(s.learningRate > 0) {
		return errors.New("--learning-rate: want more than 0")
	}
	return nil
}

// rate is the learning rate of a step: it falls evenly from 1.0 to 0.3 of the
// first over the run.
func (s settings) rate(step int) float64 {
	return s.learningRate * (1 - 0.7*float64(step)/float64(s.iterations))
}

// testSize is a tenth of the training samples, at least one.
func (s settings) testSize() int { return max(1, s.trainSize/10) }
