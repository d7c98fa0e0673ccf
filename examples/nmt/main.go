// Command nmt translates. An LSTM reads a sentence. Another LSTM writes its
// translation, and looks back at the words by attention. The language is
// artificial, so the right answer is known: a translation is the reversed
// sentence, or its sorted words.
//
//	plx launch --hosts resources.txt ./examples/nmt --task sort
//
// The words of both languages are embeddings (--arch hybrid: on servers). At
// the end the chief translates new sentences word by word, each word from the
// words that it wrote before. It prints how many translations are completely
// right.
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
	network
	task         string
	batch, steps int
	rate         float64
}

func main() {
	s := settings{network: network{dtype: tensor.Float32}}
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define adds the flags to f.
func (s *settings) define(f *flag.FlagSet) {
	f.StringVar(&s.task, "task", "reverse", "kind of translation: `reverse|sort`")
	f.IntVar(&s.words, "vocabulary", 20, "different `words`")
	f.IntVar(&s.length, "length", 8, "`words` of the longest sentences")
	f.IntVar(&s.width, "width", 32, "`elements` of a word's vector")
	f.IntVar(&s.hidden, "hidden", 64, "`cells` of each LSTM")
	f.IntVar(&s.batch, "batch-size", 64, "`sentences` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 600, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.005, "`rate` of Adam")
}

// check reports a flag that makes no sense.
func (s *settings) check() error {
	if translations[s.task] == nil {
		return fmt.Errorf("--task is %q: want reverse or sort", s.task)
	}
	return cmp.Or(flags.AtLeast("vocabulary", s.words, 2), flags.AtLeast("length", s.length, 1), flags.AtLeast("width", s.width, 1),
		flags.AtLeast("hidden", s.hidden, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate))
}

// train is one worker's part. The chief prints every fiftieth step, and the
// number of right translations at the end.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	s.network = s.seeded(job.Seed())
	l := language{seed: s.seed, words: s.words, length: s.length, translate: translations[s.task]}
	replica, err := job.Parallelize(ctx, s.build, trainer.Adam(s.rate), trainer.GlobalBatch(s.batch), trainer.ClipNorm(1))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	feed := func(step int) (trainer.Feed, error) {
		return l.sentences(step*s.batch+from, step*s.batch+to).feed(), nil
	}
	for result, err := range replica.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	// All workers translate, because all must be present when rows are
	// requested.
	const tested = 200
	fresh := l.sentences(s.steps*s.batch, s.steps*s.batch+tested)
	right, err := fresh.right(func(f trainer.Feed) (trainer.Result, error) { return replica.Evaluate(ctx, f) })
	if err == nil && job.IsChief() {
		fmt.Printf("translated %d of %d sentences right\n", right, tested)
	}
	return err
}
