// Command skipthoughts learns vectors of sentences. An encoder turns a sentence
// into a vector. From this vector alone, two decoders write the sentences
// before and after it in the story.
//
//	plx launch --hosts resources.txt ./examples/skipthoughts
//
// The stories are artificial, so the right answer is known: each sentence is
// the sentence before it, reversed, with every word replaced by the next word
// of the vocabulary. At the end the chief prints for how many new sentences
// both neighbours are completely right. The vocabulary is large enough that few
// of these sentences occurred in training.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

// settings are the program's flags.
type settings struct {
	network
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
	f.IntVar(&s.words, "vocabulary", 20, "different `words`")
	f.IntVar(&s.length, "length", 5, "`words` of a sentence")
	f.IntVar(&s.width, "width", 16, "`elements` of a word's vector")
	f.IntVar(&s.hidden, "hidden", 64, "`elements` of a sentence's vector")
	f.IntVar(&s.batch, "batch-size", 64, "`sentences` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 800, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.01, "`rate` of Adam, falling to a tenth")
}

// check reports a flag that makes no sense.
func (s *settings) check() error {
	return cmp.Or(flags.AtLeast("vocabulary", s.words, 2), flags.AtLeast("length", s.length, 1), flags.AtLeast("width", s.width, 1),
		flags.AtLeast("hidden", s.hidden, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate))
}

// train is one worker's part. The chief prints every fiftieth step, and the
// number of right neighbours at the end.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	net := s.network
	net.seed = job.Seed()
	stories := stories{seed: net.seed, words: s.words, length: s.length}
	falling := func(step int) float64 { return s.rate * (1 - 0.9*float64(step)/float64(s.steps)) }
	replica, err := job.Parallelize(ctx, net.build, trainer.Adam(s.rate).WithSchedule(falling), trainer.GlobalBatch(s.batch), trainer.ClipNorm(1))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	feed := func(step int) (trainer.Feed, error) {
		return stories.read(step*s.batch+from, step*s.batch+to).feed(), nil
	}
	for result, err := range replica.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	// All workers evaluate, because all must be present when rows are
	// requested.
	const tested = 200
	fresh := stories.read(s.steps*s.batch, s.steps*s.batch+tested)
	result, err := replica.Evaluate(ctx, fresh.feed())
	if err == nil && job.IsChief() {
		fmt.Printf("both neighbours of %d of %d sentences right\n", fresh.right(result.Fetches["logits"][0].(*tensor.Dense)), tested)
	}
	return err
}

// network is an encoder and two decoders of gated recurrent units (Kiros et al.
// 2015, "Skip-thought vectors"). Unlike in the paper, the decoders get the
// sentence's vector only at their beginning.
type network struct {
	seed          uint64
	words, length int // of the language, and of a sentence
	width, hidden int
	dtype         tensor.Dtype // float32 or float64
}

// build makes the model for plx. Its inputs are the numbers of words, sentence
// after sentence: "sentence"; "previous words" and "next words", the number
// that begins a sentence and the neighbours' words but for the last; and
// "previous" and "next", the neighbours' words. The fetch "logits" is about the
// words of all previous sentences and then of all next ones, (2*batch*length,
// words). The metric "accuracy" is the fraction of all words that are predicted
// correctly from the right words before them.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	table := &trainer.Embedding{Name: "words", Rows: n.words + 1, Width: n.width, Dtype: n.dtype, First: trainer.UniformRows(n.seed, -0.5, 0.5)}
	count := batch * n.length
	gru := func(name, words string, first *gorgonia.Node) nn.Sequence {
		return n.gru(b, name, b.Lookup(table, words, count), first)
	}
	thought := gru("encoder", "sentence", nil).Last
	previous := gru("previous decoder", "previous words", thought).Out
	next := gru("next decoder", "next words", thought).Out
	logits := b.Node(nn.Concat(0, b.Linear("previous logits", previous, n.hidden, n.words), b.Linear("next logits", next, n.hidden, n.words)))
	target := b.Node(nn.Concat(0, b.Input("previous", count), b.Input("next", count)))
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, target)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, target))},
		Fetches: map[string]*gorgonia.Node{"logits": logits},
	})
}

// gru is a layer over the vectors of words that begins with first, or with
// zeros.
func (n network) gru(b *builder.Builder, name string, x, first *gorgonia.Node) nn.Sequence {
	s, err := nn.GRU{X: x, First: first,
		Input: b.Weights(name+".input", n.width, 3*n.hidden), State: b.Weights(name+".state", n.hidden, 3*n.hidden),
		Bias: b.Variable(name+".bias", trainer.Zeros(), 3*n.hidden)}.Over(n.length)
	b.Keep(err)
	return s
}
