// Command lm trains a language model, which learns to predict the next word.
//
//	plx launch --hosts resources.txt ./examples/lm --text news.en-00001-of-00100 --words vocabulary.txt
//
// The word vectors and the weights of the softmax are embeddings. The softmax
// uses a sample of the words, so the time of a step does not depend on their
// number. A text file has one sentence on each line. Without a text, the
// program generates words by a rule whose perplexity is known.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/random"
)

// settings holds the values of the program's flags.
type settings struct {
	text, words           string
	vocabulary, drawn     int // vocabulary is the number of different words, drawn the number of words sampled for the softmax
	width, hidden, length int // width and hidden are the sizes of the network's layers; length is the number of words of each row that a step reads
	batch, steps, every   int
	rate                  float64
	dense                 bool // use ordinary variables instead of embeddings
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

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
	f.BoolVar(&s.dense, "dense", false, "tables are ordinary variables; --find-sparse=false keeps them dense")
}

func (s *settings) check() error {
	if (s.text == "") != (s.words == "") || flag.NArg() > 0 {
		return errors.New("--text and --words: give both, or none, and commas between texts")
	}
	for _, f := range []struct {
		name         string
		value, least int
	}{{"samples", s.drawn, 1}, {"vocabulary", s.vocabulary, max(4, 2*s.drawn)}, {"width", s.width, 1}, {"hidden", s.hidden, 1},
		{"length", s.length, 1}, {"batch-size", s.batch, 1}, {"steps", s.steps, 0}, {"every", s.every, 1}} {
		if f.value < f.least {
			return fmt.Errorf("--%s is %d: want at least %d", f.name, f.value, f.least)
		}
	}
	if !(s.rate > 0 && s.rate <= math.MaxFloat32) {
		return fmt.Errorf("--learning-rate is %v: want more than 0", s.rate)
	}
	return nil
}

// build builds the model: an LSTM over word vectors and a sampled softmax over
// its outputs (Jozefowicz et al. 2016, "Exploring the limits of language
// modeling"). The inputs "state" and "cell" are the LSTM's final state and
// cell of the previous step. The metric estimates the cross-entropy over all
// words.
func (s *settings) build(b *nn.Builder) {
	count, state, cell := b.Batch()*s.length, b.Input("state", s.width), b.Input("cell", s.hidden)
	read := b.LSTM("lstm", s.table(b, "words", s.width)("word", count), nn.Recurrent{Units: s.hidden, Width: s.width,
		Steps: s.length, First: state, FirstCell: cell})
	b.Carry(state, read.Last)
	b.Carry(cell, read.Cell)
	classes := s.table(b, "classes", s.width+1)
	loss, entropy, err := nn.SampledCrossEntropy(read.Out, nn.Candidates{
		LabelRows: classes("target", count), Label: b.Indices("label", count), LabelLog: b.InputOf("label log", count),
		SampleRows: classes("sample", s.drawn), Sample: b.Indices("class", s.drawn), SampleLog: b.InputOf("class log", s.drawn),
	})
	b.Loss(b.Node(loss, err), trainer.Mean)
	b.Metric("entropy", entropy)
}

// table adds a table of vectors to the model. The returned function adds an
// operation that looks up a given number of the table's rows.
func (s *settings) table(b *nn.Builder, name string, width int) func(lookup string, rows int) *nn.Node {
	const bound = 0.05
	if s.dense {
		all := b.Variable(name, nn.Uniform(-bound, bound), s.vocabulary, width)
		return func(lookup string, rows int) *nn.Node { return b.Node(nn.Rows(all, b.Indices(lookup, rows))) }
	}
	e := b.Embedding(name, s.vocabulary, width, bound, trainer.Partitioner(1))
	return func(lookup string, rows int) *nn.Node { return b.Lookup(e, lookup, rows) }
}

// text is a function that starts to read one of the endless rows of words into
// which the text is divided. It skips the first skip words. Each call of next
// returns the next word.
type text func(row, skip int) (next func() int64)

// open returns the text and a description of it. If the file --words has fewer
// words than --vocabulary, open lowers s.vocabulary.
func (s *settings) open(seed uint64) (text, fmt.Stringer, error) {
	if s.text == "" {
		made := data.MakeText(seed, s.vocabulary)
		return made.Row, made, nil
	}
	// "<S>" stands for the end of a sentence, "<UNK>" for every unknown word.
	words, err := data.ReadWords(s.words, s.vocabulary, "<S>", "<UNK>")
	if err != nil {
		return nil, nil, fmt.Errorf("--words: %w", err)
	}
	if s.vocabulary = words.Len(); s.vocabulary < 2*s.drawn {
		return nil, nil, fmt.Errorf("--samples is %d: want at most half of the %d words of %s", s.drawn, s.vocabulary, s.words)
	}
	corpus, err := data.ReadCorpus(words, "<S>", strings.Split(s.text, ",")...)
	if err != nil {
		return nil, nil, fmt.Errorf("--text: %w", err)
	}
	if corpus.Len() < 2*s.batch {
		return nil, nil, fmt.Errorf("--text: %d words for %d rows: want at least two for each", corpus.Len(), s.batch)
	}
	return func(row, skip int) func() int64 { return corpus.Row(row, s.batch, skip) }, corpus, nil
}

// feeder returns a function that returns the model's inputs for each step. The
// inputs are the rows of text that belong to this worker.
func (s *settings) feeder(job *trainer.Job, session *trainer.Session, t text) (func(step int) (trainer.Feed, error), error) {
	from, to := session.Rows()
	next, last := make([]func() int64, to-from), make([]int64, to-from) // indexed by row: the reader of the row's next words, and the row's last word that was fed to the model
	for row := range next {
		next[row] = t(from+row, session.Steps()*s.length)
		last[row] = next[row]()
	}
	sampler, err := nn.NewSampler(s.vocabulary, s.drawn)
	return func(step int) (trainer.Feed, error) {
		var words, targets []int64
		for row, word := range next {
			for range s.length {
				words, last[row] = append(words, last[row]), word()
				targets = append(targets, last[row])
			}
		}
		drawn, logs, labelLogs := sampler.Draw(random.New(job.Seed(), "samples").Derive(uint64(step)), job.ShardID(), job.NumReplicasPerWorker(), targets)
		return trainer.Feed{"word": nn.Batch(words), "target": nn.Batch(targets), "label": nn.Batch(targets),
			"label log": nn.Batch(labelLogs), "sample": nn.Batch(drawn), "class": nn.Batch(drawn), "class log": nn.Batch(logs)}, nil
	}, err
}

// train runs on each worker. The chief (worker 0) prints a line at intervals.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	text, about, err := s.open(job.Seed())
	if err != nil {
		return err
	}
	if job.IsChief() {
		job.Logf(slog.LevelInfo, "the text is %v", about)
	}
	// Adagrad divides by the root of the sum of squared gradients, which is
	// small at first. Without a warm-up, the first steps would be too large.
	optimizer := trainer.Adagrad(s.rate).WithSchedule(trainer.WarmUp(50, func(int) float64 { return s.rate }))
	optimizer.Settings.Accumulator = 1e-6 // small, because the gradients of single words are small
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), s.build), optimizer, trainer.Config{GlobalBatch: s.batch, ClipNorm: 1})
	if err != nil {
		return err
	}
	feed, err := s.feeder(job, session, text)
	if err != nil {
		return err
	}
	entropy, steps, since := 0.0, 0, time.Now() // sum of the cross-entropies, number of steps and start time since the last printed line
	for r, err := range session.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		entropy, steps = entropy+r.Metrics["entropy"], steps+1
		if left := s.steps - 1 - r.Step; job.IsChief() && (r.Step == 0 || left%s.every == 0) {
			fmt.Printf("step %d | loss %.4f | perplexity %.2f | words/s %.0f\n", r.Step, r.Loss,
				math.Exp(entropy/float64(steps)), float64(steps*s.batch*s.length)/time.Since(since).Seconds())
			entropy, steps, since = 0, 0, time.Now()
		}
	}
	return nil
}
