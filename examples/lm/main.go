// Command lm is a language model: it learns to predict the next word. Both of
// its tables, the words' vectors and the softmax's weights, are embeddings. The
// softmax is over a sample of the vocabulary. So the cost of a step does not
// depend on the number of words:
//
//	plx launch --hosts resources.txt ./examples/lm --text news.en-00001-of-00100 --words vocabulary.txt
//
// A text has a sentence on each line and spaces between words, as in the one
// billion word benchmark. Without a text, a rule with known perplexity
// generates the words.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// settings are the program's flags.
type settings struct {
	network
	text, words         string
	batch, steps, every int
	rate                float64
}

func main() {
	s := settings{network: network{dtype: tensor.Float32}}
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define adds the flags to f.
func (s *settings) define(f *flag.FlagSet) {
	f.StringVar(&s.text, "text", "", "`files` to read, separated by commas (default: artificial text)")
	f.StringVar(&s.words, "words", "", "their vocabulary `file`: a word on each line, the most frequent first, or a word followed by its count")
	f.IntVar(&s.vocabulary, "vocabulary", 10000, "different `words`; of --words, the most frequent ones")
	f.IntVar(&s.width, "width", 128, "`elements` of a word's vector")
	f.IntVar(&s.hidden, "hidden", 128, "`cells` of the LSTM; they are projected to --width if it is another number")
	f.IntVar(&s.length, "length", 20, "`words` that gradients flow back through")
	f.IntVar(&s.batch, "batch-size", 32, "`rows` of text that are read side by side, for all workers together")
	f.IntVar(&s.drawn, "samples", 512, "`words` among which each virtual worker's softmax finds the next word")
	f.IntVar(&s.steps, "steps", 500, "`steps` to take")
	f.IntVar(&s.every, "every", 50, "`steps` between two lines")
	f.Float64Var(&s.rate, "learning-rate", 0.05, "`rate` of Adagrad")
	f.BoolVar(&s.dense, "dense", false, "tables are ordinary variables")
}

// check reports a flag that makes no sense.
func (s *settings) check() error {
	if (s.text == "") != (s.words == "") || flag.NArg() > 0 {
		return fmt.Errorf("--text and --words: give both, or none, and commas between texts")
	}
	return cmp.Or(flags.AtLeast("samples", s.drawn, 1), flags.AtLeast("vocabulary", s.vocabulary, max(4, 2*s.drawn)),
		flags.AtLeast("width", s.width, 1), flags.AtLeast("hidden", s.hidden, 1), flags.AtLeast("length", s.length, 1),
		flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0), flags.AtLeast("every", s.every, 1),
		flags.Rate("learning-rate", s.rate))
}

// train is one worker's part. The chief's lines are about the steps since the
// last line.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	s.network = s.seeded(job.Seed())
	text, about, err := s.open()
	if err != nil {
		return err
	}
	if job.IsChief() {
		job.Logf(slog.LevelInfo, "the text is %v", about)
	}
	// Adagrad's first steps are large, because it has seen few gradients to
	// divide by.
	optimizer := trainer.Adagrad(s.rate).WithSchedule(trainer.WarmUp(50, func(int) float64 { return s.rate }))
	optimizer.Settings.Accumulator = 1e-6 // gradients of single words are small
	replica, err := job.Parallelize(ctx, s.build, optimizer, trainer.GlobalBatch(s.batch), trainer.ClipNorm(1))
	if err != nil {
		return err
	}
	feeder, err := newFeeder(ctx, s.network, text, job, replica)
	if err != nil {
		return err
	}
	entropy, steps, since := 0.0, 0, time.Now() // since the last line
	for result, err := range replica.Train(ctx, s.steps, feeder.feed) {
		if err != nil {
			return err
		}
		feeder.carry(result)
		entropy, steps = entropy+result.Metrics["entropy"], steps+1
		if left := s.steps - 1 - result.Step; job.IsChief() && (result.Step == 0 || left%s.every == 0) {
			fmt.Printf("step %d | loss %.4f | perplexity %.2f | words/s %.0f\n", result.Step, result.Loss,
				math.Exp(entropy/float64(steps)), float64(steps*s.batch*s.length)/time.Since(since).Seconds())
			entropy, steps, since = 0, 0, time.Now()
		}
	}
	return nil
}

// network is an LSTM over words' vectors and a sampled softmax over its outputs
// (Jozefowicz et al. 2016, "Exploring the limits of language modeling", at a
// small size).
type network struct {
	seed                  uint64
	vocabulary, drawn     int // words, and number of sampled words
	width, hidden, length int
	dense                 bool         // tables are ordinary variables
	dtype                 tensor.Dtype // float32 or float64
}

// seeded returns the network with first values that depend on a seed.
func (n network) seeded(seed uint64) network {
	n.seed = seed
	return n
}

// of returns the network for another number of words.
func (n network) of(vocabulary int) network {
	n.vocabulary = vocabulary
	return n
}

// build makes the model for plx. Its inputs are, row by row: "word" and the
// next words, "target" and again "label"; the sampled words "sample" and again
// "class"; the logarithms of both's expected counts; and the "state" and "cell"
// at the beginning of the rows. The fetches of the same names are state and
// cell at their end. The metric "entropy" estimates the cross entropy over all
// words.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	count := batch * n.length
	layer := nn.LSTM{X: n.table(b, "words", n.width)("word", count), Forget: 1,
		First: b.Input("state", batch, n.width), FirstCell: b.Input("cell", batch, n.hidden),
		Input: b.Weights("lstm.input", n.width, 4*n.hidden), State: b.Weights("lstm.state", n.width, 4*n.hidden),
		Bias: b.Variable("lstm.bias", trainer.Zeros(), 4*n.hidden)}
	if n.hidden != n.width {
		layer.Projection = b.Weights("lstm.projection", n.hidden, n.width)
	}
	classes := n.table(b, "classes", n.width+1)
	candidates := nn.Candidates{
		LabelRows: classes("target", count), Label: b.InputOf(tensor.Int64, "label", count), LabelLog: b.Input("label log", count),
		SampleRows: classes("sample", n.drawn), Sample: b.InputOf(tensor.Int64, "class", n.drawn), SampleLog: b.Input("class log", n.drawn),
	}
	read, err := layer.Over(n.length)
	b.Keep(err)
	loss, entropy, err := nn.SampledCrossEntropy(read.Out, candidates)
	b.Keep(err)
	return b.Done(trainer.Model{
		Loss:    loss,
		Metrics: map[string]*gorgonia.Node{"entropy": entropy},
		Fetches: map[string]*gorgonia.Node{"state": read.Last, "cell": read.Cell},
	})
}

// table adds a table. It returns a function that looks up a number of rows.
func (n network) table(b *builder.Builder, name string, width int) func(lookup string, rows int) *gorgonia.Node {
	const bound = 0.05
	if n.dense {
		all := b.Variable(name, trainer.Uniform(n.seed, name, -bound, bound), n.vocabulary, width)
		return func(lookup string, rows int) *gorgonia.Node {
			return b.Node(nn.Rows(all, b.InputOf(tensor.Int64, lookup, rows)))
		}
	}
	e := &trainer.Embedding{Name: name, Rows: n.vocabulary, Width: width, Dtype: n.dtype,
		First: trainer.UniformRows(n.seed, -bound, bound), Partitioner: trainer.Partitioner(1)}
	return func(lookup string, rows int) *gorgonia.Node { return b.Lookup(e, lookup, rows) }
}
