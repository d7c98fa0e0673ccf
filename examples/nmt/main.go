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
	net := s.network
	net.seed = job.Seed()
	l := language{seed: net.seed, words: s.words, length: s.length, translate: translations[s.task]}
	replica, err := job.Parallelize(ctx, net.build, trainer.Adam(s.rate), trainer.GlobalBatch(s.batch), trainer.ClipNorm(1))
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

// network is an encoder and a decoder with attention (Luong et al. 2015,
// "Effective approaches to attention-based neural machine translation", its
// global attention).
type network struct {
	seed          uint64
	words, length int // of the language, and of the longest sentence
	width, hidden int
	dtype         tensor.Dtype // float32 or float64
}

// The numbers below special are not words. end pads a sentence and ends a
// translation; begin begins a translation.
const end, begin, special = 0, 1, 2

// build makes the model for plx. Its inputs are, sentence after sentence and
// each padded to length words: "source", the numbers of the words; "before", a
// begin and the translation's words but for the last; "target", the
// translation's words; and "mask", (batch, length), 1 at the source's words.
// The fetch "logits" has shape (batch*length, classes). The metric "accuracy"
// is the fraction of all words, ends included, that are predicted correctly
// from the right words before them.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	mask := b.Input("mask", batch, n.length)
	target := b.Input("target", batch*n.length)
	read := n.lstm(b, "encoder", n.lookup(b, "source", batch))
	written := n.lstm(b, "decoder", n.lookup(b, "before", batch), read.Last, read.Cell)
	seen := b.Node(nn.Attention(written.Out, read.Out, mask))
	both := b.Node(nn.Concat(1, seen, written.Out))
	joint := b.Node(nn.Tanh(b.Linear("joint", both, 2*n.hidden, n.hidden)))
	logits := b.Linear("logits", joint, n.hidden, special+n.words)
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, target)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, target))},
		Fetches: map[string]*gorgonia.Node{"logits": logits},
	})
}

// lookup finds the words of a batch in a table of their own.
func (n network) lookup(b *builder.Builder, name string, batch int) *gorgonia.Node {
	e := &trainer.Embedding{Name: name + " words", Rows: special + n.words, Width: n.width, Dtype: n.dtype,
		First: trainer.UniformRows(n.seed, -0.5, 0.5)}
	return b.Lookup(e, name, batch*n.length)
}

// lstm is a layer that begins with a state and a cell, or with zeros.
func (n network) lstm(b *builder.Builder, name string, x *gorgonia.Node, first ...*gorgonia.Node) nn.Sequence {
	layer := nn.LSTM{X: x, Input: b.Weights(name+".input", n.width, 4*n.hidden), State: b.Weights(name+".state", n.hidden, 4*n.hidden),
		Bias: b.Variable(name+".bias", trainer.Zeros(), 4*n.hidden), Forget: 1}
	if len(first) == 2 {
		layer.First, layer.FirstCell = first[0], first[1]
	}
	s, err := layer.Over(n.length)
	b.Keep(err)
	return s
}
