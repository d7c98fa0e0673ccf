package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
)

// settings holds the values of the program's flags.
type settings struct {
	layers, dimIn, classes, dimHidden int
	trainSize, batchSize, iterations  int
	learningRate                      float64
	optimizer                         string
	clipNorm, dropout                 float64
	save, files                       string
	header, skip                      bool // header: CSV files begin with a line of column names; skip: skip corrupt rows of CSV files
	reportEvery, patience, slowWorker int
	slowBy                            time.Duration
	seed                              uint64 // seed of the trainer, from its flag --seed
}

// define defines the program's flags on f.
func (s *settings) define(f *flag.FlagSet) {
	f.IntVar(&s.layers, "n-layers", 4, "linear `layers`")
	f.IntVar(&s.dimIn, "dim-in", 1024, "`features` of a sample; half of them are informative")
	f.IntVar(&s.classes, "n-classes", 32, "`classes`, of 10 clusters each")
	f.IntVar(&s.dimHidden, "dim-hidden", 256, "`width` between the layers")
	f.StringVar(&s.files, "files", "", "CSV or .npy `files` of rows of features and a class, separated by commas; their rows are interleaved (default: generated samples)")
	f.BoolVar(&s.header, "header", false, "the first line of a CSV file has names")
	f.BoolVar(&s.skip, "skip-corrupt", false, "skip corrupt rows of CSV files, and count them")
	f.IntVar(&s.trainSize, "train-size", 10000, "training `samples`; the test has a tenth of that number in addition")
	f.IntVar(&s.batchSize, "batch-size", 64, "`samples` of one step, for all workers together; if not given, raised to the next number that divides equally among the workers")
	f.Float64Var(&s.learningRate, "learning-rate", 0.1, "`rate` of the first step; it falls linearly to 0.3 of that")
	f.StringVar(&s.optimizer, "optimizer", "sgd", "`rule` of update: sgd, momentum, adagrad or adam")
	f.Float64Var(&s.clipNorm, "clip-norm", 0, "scale gradients down to this global `norm` (default: do not scale)")
	f.Float64Var(&s.dropout, "dropout", 0, "`fraction` of each hidden layer to drop in training")
	f.IntVar(&s.iterations, "niters", 1000, "`steps`")
	f.IntVar(&s.reportEvery, "report-every", 100, "`steps` between two of the chief's lines")
	f.IntVar(&s.patience, "patience", 0, "stop after this number of `lines` without a lower test loss (default: never)")
	f.IntVar(&s.slowWorker, "slow-worker", -1, "`rank` of a worker to slow down; -1 for none")
	f.DurationVar(&s.slowBy, "slow-by", 50*time.Millisecond, "`time` by which each step of the slow worker is delayed")
	f.StringVar(&s.save, "save", "", "`file` to which the chief writes the trained weights")
}

// String returns the line with the configuration that the program prints
// first.
func (s *settings) String() string {
	return fmt.Sprintf("n-layers %d | dim-in %d | n-classes %d | dim-hidden %d | train-size %d | batch-size %d | learning-rate %v | niters %d",
		s.layers, s.dimIn, s.classes, s.dimHidden, s.trainSize, s.batchSize, s.learningRate, s.iterations)
}

// optimizers maps each value of --optimizer to a function that creates the
// optimizer.
var optimizers = map[string]func(rate float64) trainer.Optimizer{
	"sgd":      trainer.SGD,
	"momentum": func(rate float64) trainer.Optimizer { return trainer.Momentum(rate, 0.9) },
	"adagrad":  trainer.Adagrad,
	"adam":     trainer.Adam,
}

// check returns an error if the value of a flag is invalid.
func (s *settings) check() error {
	if s.batchSize > 0 && s.trainSize < s.batchSize {
		return fmt.Errorf("--train-size is %d: want at least one batch of %d", s.trainSize, s.batchSize)
	}
	if !(s.clipNorm >= 0) {
		return fmt.Errorf("--clip-norm is %v: want more than 0", s.clipNorm)
	}
	if optimizers[s.optimizer] == nil {
		return fmt.Errorf("--optimizer %q: want one of %s", s.optimizer,
			strings.Join(slices.Sorted(maps.Keys(optimizers)), ", "))
	}
	return cmp.Or(flags.AtLeast("n-layers", s.layers, 1), flags.AtLeast("dim-in", s.dimIn, 1), flags.AtLeast("n-classes", s.classes, 2),
		flags.AtLeast("dim-hidden", s.dimHidden, 1), flags.AtLeast("train-size", s.trainSize, 1), flags.AtLeast("batch-size", s.batchSize, 1),
		flags.AtLeast("niters", s.iterations, 0), flags.AtLeast("report-every", s.reportEvery, 1), flags.AtLeast("patience", s.patience, 0),
		flags.Rate("learning-rate", s.learningRate), flags.Fraction("dropout", s.dropout))
}

// rate returns the learning rate of a step. It falls linearly from the value
// of --learning-rate to 0.3 times that value.
func (s *settings) rate(step int) float64 {
	return s.learningRate * (1 - 0.7*float64(step)/float64(s.iterations))
}

// testSize returns the number of test samples: a tenth of the training
// samples, at least one.
func (s *settings) testSize() int { return max(1, s.trainSize/10) }
