// Command nmt trains a network to translate. An LSTM reads a sentence, and
// another LSTM writes its translation with attention over the words read. The
// language is artificial, so the correct answer is known: the reversed
// sentence, or its words in sorted order.
//
//	plx launch --hosts resources.txt ./examples/nmt --task sort
//	plx launch --hosts resources.txt ./examples/nmt --source train.en --target train.de --words words.txt
//
// With --source and --target it learns from two texts: line n of the target is
// the translation of line n of the source. The word vectors of both languages
// are embeddings, which --arch hybrid places on parameter servers. At the end
// the chief (worker 0) translates new sentences word by word, and prints the
// number of completely correct translations.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/plx-run/plx/examples/internal/corrupt"
	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

// settings holds the values of the program's flags.
type settings struct {
	network
	task                 string
	source, target, list string
	skip                 bool // skip corrupt lines instead of failing
	batch, steps         int
	rate                 float64
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define defines the program's flags on f.
func (s *settings) define(f *flag.FlagSet) {
	f.StringVar(&s.task, "task", "reverse", "kind of translation: `reverse|sort`")
	f.StringVar(&s.source, "source", "", "text `files` to translate from, separated by commas; their lines are interleaved (default: artificial sentences)")
	f.StringVar(&s.target, "target", "", "translations of the lines of --source: the same number of `files`")
	f.StringVar(&s.list, "words", "", "`file` of the words of both languages: a word on each line, the most frequent first, or a word followed by its count")
	f.BoolVar(&s.skip, "skip-corrupt", false, "skip lines that are empty, too long or not UTF-8, and count them")
	f.IntVar(&s.words, "vocabulary", 20, "different `words`; of --words, the most frequent ones")
	f.IntVar(&s.length, "length", 8, "`words` of the longest sentences")
	f.IntVar(&s.width, "width", 32, "`elements` of a word's vector")
	f.IntVar(&s.hidden, "hidden", 64, "`cells` of each LSTM")
	f.IntVar(&s.batch, "batch-size", 64, "`sentences` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 600, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.005, "`rate` of Adam")
}

// check returns an error if the value of a flag is invalid.
func (s *settings) check() error {
	if translations[s.task] == nil {
		return fmt.Errorf("--task is %q: want reverse or sort", s.task)
	}
	if given := s.source != ""; given != (s.target != "") || given != (s.list != "") {
		return errors.New("--source, --target and --words: give all three, or none")
	}
	return cmp.Or(flags.AtLeast("vocabulary", s.words, 2), flags.AtLeast("length", s.length, 1), flags.AtLeast("width", s.width, 1),
		flags.AtLeast("hidden", s.hidden, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate))
}

// train runs on each worker. The chief, worker 0, prints every fiftieth step,
// and at the end the number of correct translations.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	skipped := corrupt.Skipped(job, s.skip)
	learnt, tested, words, err := s.open(job, skipped)
	if err != nil {
		return err
	}
	s.network = s.withWords(words)
	shard, err := trainer.Shard(ctx, job, learnt, s.batch)
	if err != nil {
		return err
	}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), s.build), trainer.Adam(s.rate), trainer.Config{GlobalBatch: s.batch, ClipNorm: 1})
	if err != nil {
		return err
	}
	feed := shard.Feed(func(all []sentence) (trainer.Feed, error) { return join(s.length, all).feed(), nil })
	for result, err := range session.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	// All workers translate, although only the chief prints the result: the
	// model reads embedding rows, and every worker must take part in that.
	var all []sentence
	for i := range tested.Len() {
		one, err := tested.At(i)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	fresh := join(s.length, all)
	right, err := fresh.right(func(f trainer.Feed) (trainer.Result, error) { return session.Evaluate(ctx, f) })
	if err == nil && job.IsChief() {
		fmt.Printf("translated %d of %d sentences right\n", right, tested.Len())
	}
	corrupt.Log(job, skipped)
	return err
}

// mostTested is the maximum number of sentences that the program translates
// after the training.
const mostTested = 200

// network is an encoder and a decoder with attention (Luong et al. 2015,
// "Effective approaches to attention-based neural machine translation", its
// global attention).
type network struct {
	words, length int // words is the number of words of the language, length the number of words of the longest sentence
	width, hidden int
}

// withWords returns a copy of n for a language with the given number of words.
func (n network) withWords(words int) network {
	n.words = words
	return n
}

// Numbers less than special do not stand for words: end pads a sentence and
// ends a translation, and begin begins a translation.
const end, begin, special = 0, 1, 2

// build builds the model. Its inputs contain one sentence after another, each
// padded to n.length words. "source" contains the words of the sentences,
// "target" the words of the translations. "before" contains the translations
// shifted by one word, with the number begin first. "mask", of shape (batch,
// length), is 1 at words and 0 at padding. The output "logits" has shape
// (batch*length, classes). The metric "accuracy" is the fraction of all words,
// padding included, that are predicted correctly from the correct words before
// them.
func (n network) build(b *nn.Builder) {
	count := b.Batch() * n.length
	mask, target := b.Input("mask", n.length), b.InputOf("target", count)
	lookup := func(name string) *nn.Node { // each language has its own embedding
		return b.Lookup(b.Embedding(name+" words", special+n.words, n.width, 0.5), name, count)
	}
	read := b.LSTM("encoder", lookup("source"), nn.Recurrent{Units: n.hidden, Steps: n.length})
	written := b.LSTM("decoder", lookup("before"), nn.Recurrent{Units: n.hidden, Steps: n.length, First: read.Last, FirstCell: read.Cell})
	seen := b.Attention(written.Out, read.Out, mask)
	joint := b.Tanh(b.Dense("joint", b.Node(nn.Concat(1, seen, written.Out)), n.hidden))
	logits := b.Dense("logits", joint, special+n.words)
	b.CrossEntropy(logits, target)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, target)))
	b.Fetch("logits", logits)
}
