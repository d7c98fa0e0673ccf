// Command skipthoughts learns vectors of sentences. An encoder turns a
// sentence into a vector. From this vector, two decoders write the previous
// and the next sentence of the story.
//
//	plx launch --hosts resources.txt ./examples/skipthoughts
//
// The stories are artificial, so the correct answer is known: each sentence is
// the previous sentence, reversed, with every word replaced by the next word
// of the vocabulary. At the end the chief (worker 0) tests new sentences. It
// prints the number of sentences for which both decoders are completely
// correct. The vocabulary is so large that few of these sentences occurred in
// training.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"

	"gorgonia.org/tensor"

	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

// settings holds the values of the program's flags.
type settings struct {
	network
	batch, steps int
	rate         float64
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define defines the program's flags on f.
func (s *settings) define(f *flag.FlagSet) {
	f.IntVar(&s.words, "vocabulary", 20, "different `words`")
	f.IntVar(&s.length, "length", 5, "`words` of a sentence")
	f.IntVar(&s.width, "width", 16, "`elements` of a word's vector")
	f.IntVar(&s.hidden, "hidden", 64, "`elements` of a sentence's vector")
	f.IntVar(&s.batch, "batch-size", 64, "`sentences` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 800, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.01, "`rate` of Adam, falling to a tenth")
}

// check returns an error if the value of a flag is invalid.
func (s *settings) check() error {
	return cmp.Or(flags.AtLeast("vocabulary", s.words, 2), flags.AtLeast("length", s.length, 1), flags.AtLeast("width", s.width, 1),
		flags.AtLeast("hidden", s.hidden, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate))
}

// train runs on each worker. The chief (worker 0) prints every fiftieth step.
// At the end it prints the number of sentences whose neighbours are predicted
// correctly.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	stories := stories{seed: job.Seed(), words: s.words, length: s.length}
	shard, err := trainer.Shard(ctx, job, stories, s.batch)
	if err != nil {
		return err
	}
	falling := func(step int) float64 { return s.rate * (1 - 0.9*float64(step)/float64(s.steps)) }
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), s.build), trainer.Adam(s.rate).WithSchedule(falling), trainer.Config{GlobalBatch: s.batch, ClipNorm: 1})
	if err != nil {
		return err
	}
	feed := shard.Feed(func(all [][]int64) (trainer.Feed, error) { return stories.join(all).feed(), nil })
	for result, err := range session.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	// All workers evaluate, because every worker must take part when embedding
	// rows are requested.
	const tested = 200
	fresh := stories.read(s.steps*s.batch, s.steps*s.batch+tested)
	result, err := session.Evaluate(ctx, fresh.feed())
	if err == nil && job.IsChief() {
		fmt.Printf("both neighbours of %d of %d sentences right\n", fresh.right(result.Fetches["logits"][0].(*tensor.Dense)), tested)
	}
	return err
}

// network is an encoder and two decoders of gated recurrent units (Kiros et
// al. 2015, "Skip-thought vectors"). Unlike in the paper, a decoder receives
// the sentence's vector only as its initial state.
type network struct {
	words, length int // words is the number of words of the language, length the number of words of every sentence
	width, hidden int
}

// build builds the model. Its inputs are word numbers, one sentence after
// another. "sentence" contains the sentences. "previous" and "next" contain
// the sentences before and after each of them. "previous words" and "next
// words" contain the same neighbours shifted by one word, with the number that
// begins a sentence first. The output "logits" has the words of all previous
// sentences, followed by those of all next sentences; its shape is
// (2*batch*length, words). The metric "accuracy" is the fraction of all words
// that are predicted correctly from the correct words before them.
func (n network) build(b *nn.Builder) {
	table, count := b.Embedding("words", n.words+1, n.width, 0.5), b.Batch()*n.length
	gru := func(name, words string, first *nn.Node) nn.Sequence { // the parameter first is the initial state; nil means zeros
		return b.GRU(name, b.Lookup(table, words, count), nn.Recurrent{Units: n.hidden, Steps: n.length, First: first})
	}
	thought := gru("encoder", "sentence", nil).Last
	previous := gru("previous decoder", "previous words", thought).Out
	next := gru("next decoder", "next words", thought).Out
	logits := b.Node(nn.Concat(0, b.Dense("previous logits", previous, n.words), b.Dense("next logits", next, n.words)))
	target := b.Node(nn.Concat(0, b.InputOf("previous", count), b.InputOf("next", count)))
	b.CrossEntropy(logits, target)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, target)))
	b.Fetch("logits", logits)
}
