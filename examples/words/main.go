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
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/random"
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
	shard, err := trainer.Shard(ctx, job, language, s.batch)
	if err != nil {
		return err
	}
	model := classifier{language: language, width: s.width}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), model.build), trainer.Adam(s.rate), trainer.Config{GlobalBatch: s.batch, ClipNorm: 1})
	if err != nil {
		return err
	}
	for result, err := range session.Train(ctx, s.steps, shard.Feed(batch)) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	return nil
}

// classifier predicts a sentence's subject from the mean of its words' vectors,
// by one linear layer and the mean cross-entropy of its softmax.
type classifier struct {
	language
	width int // of a word's vector
}

// build makes the model for plx. Its inputs are "word", the indices of the
// sentences' words, one sentence after the other, and "subject", (batch), the
// numbers of the subjects. The metric "accuracy" is the fraction of the batch
// that is classified correctly.
func (c classifier) build(b *nn.Builder) {
	words := b.Lookup(b.Embedding("words", c.vocabulary, c.width, 0.1), "word", b.Batch()*c.length)
	sentences := b.Node(gorgonia.Reshape(words, tensor.Shape{b.Batch(), c.length, c.width}))
	logits := b.Dense("subjects", b.Node(gorgonia.Mean(sentences, 1)), c.subjects, nn.Names("w", "b"))
	subject := b.Input("subject")
	b.CrossEntropy(logits, subject)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, subject)))
}

// language generates sentences. The first half of the words is common to all
// subjects, the second half is divided among them.
type language struct {
	vocabulary int // words, at least two per subject
	length     int // words of a sentence
	subjects   int
	seed       uint64
}

// sentence is the indices of its words, and the number of its subject.
type sentence struct {
	words   []int64
	subject float32
}

// Len is more than any training reads.
func (l language) Len() int { return math.MaxInt }

// At makes sentence i, which depends only on the seed and i.
func (l language) At(i int) (sentence, error) {
	draw := random.New(l.seed, "sentences").Derive(uint64(i))
	_, u := draw.Pair(uint64(l.length))
	about := min(int(u*float64(l.subjects)), l.subjects-1)
	s := sentence{subject: float32(about)}
	for at := range l.length {
		s.words = append(s.words, l.word(draw, at, about))
	}
	return s, nil
}

// batch makes a feed of sentences.
func batch(sentences []sentence) (trainer.Feed, error) {
	var words []int64
	var subjects []float32
	for _, s := range sentences {
		words, subjects = append(words, s.words...), append(subjects, s.subject)
	}
	return trainer.Feed{"word": nn.Batch(words), "subject": nn.Batch(subjects)}, nil
}

// word returns one of the subject's own words at a third of all places, and a
// common word elsewhere.
func (l language) word(draw random.Stream, at, about int) int64 {
	kind, u := draw.Pair(uint64(at))
	common := l.vocabulary / 2
	if kind < 1./3 {
		own := common / l.subjects
		return int64(common + about*own + random.Zipf(u, own))
	}
	return int64(random.Zipf(u, common))
}
