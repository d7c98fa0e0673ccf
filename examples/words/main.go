// Command words learns the subject of a sentence from its words. The words'
// vectors are an embedding: only the rows that a batch touches travel, however
// large the vocabulary is:
//
//	go run ./examples/words
//	plx launch --hosts resources.txt ./examples/words --vocabulary 1000000
//
// The sentences are artificial. Every subject has its own words, and there are
// words common to all; both are drawn by Zipf's law. By default servers hold
// the words' table and workers hold the rest (--arch hybrid).
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"

	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"gorgonia.org/tensor"
)

// settings are the program's flags.
type settings struct {
	vocabulary, width, length, subjects, batch, steps int

	rate float64
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define adds the flags to f.
func (s *settings) define(f *flag.FlagSet) {
	f.IntVar(&s.vocabulary, "vocabulary", 10000, "different `words`")
	f.IntVar(&s.width, "width", 16, "`elements` of a word's vector")
	f.IntVar(&s.length, "length", 12, "`words` of a sentence")
	f.IntVar(&s.subjects, "subjects", 8, "different `subjects`")
	f.IntVar(&s.batch, "batch-size", 64, "`sentences` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 300, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.02, "`rate` of Adam")
}

// check reports a flag that makes no sense.
func (s *settings) check() error {
	return cmp.Or(flags.AtLeast("subjects", s.subjects, 2), flags.AtLeast("vocabulary", s.vocabulary, 2*s.subjects),
		flags.AtLeast("width", s.width, 1), flags.AtLeast("length", s.length, 1), flags.AtLeast("batch-size", s.batch, 1),
		flags.AtLeast("steps", s.steps, 0), flags.Rate("learning-rate", s.rate))
}

// train is one worker's part. The chief prints every fiftieth step.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	language := language{vocabulary: s.vocabulary, length: s.length, subjects: s.subjects, seed: job.Seed()}
	model := classifier{language: language, width: s.width, dtype: tensor.Float32}
	replica, err := job.Parallelize(ctx, model.build, trainer.Adam(s.rate), trainer.GlobalBatch(s.batch), trainer.ClipNorm(1))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	feed := func(step int) (trainer.Feed, error) {
		words, subjects := language.sentences(step*s.batch+from, step*s.batch+to)
		return trainer.Feed{"word": words, "subject": subjects}, nil
	}
	for result, err := range replica.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	return nil
}
