// Command word2vec learns vectors of words: the skip-gram model with negative
// sampling (Mikolov et al. 2013). At the end it prints words with similar
// vectors. Without --text it generates a text, in which all words of a
// sentence begin with the same letter.
//
//	plx launch --hosts resources.txt ./examples/word2vec --text news.txt --near king,paris
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

var (
	file       = flag.String("text", "", "`file` to read: UTF-8, blanks between words (default: artificial text)")
	near       = flag.String("near", "", "`words`, with commas between them, to print neighbours of (default: the most frequent)")
	vocabulary = flag.Int("vocabulary", 1000, "different `words`; of --text, the most frequent ones")
	dimension  = flag.Int("dimension", 32, "`elements` of a word's vector")
	window     = flag.Int("window", 5, "number of `words` on each side of a word that count as its neighbours")
	negatives  = flag.Int("negatives", 5, "number of random `words` for each pair of neighbouring words")
	batch      = flag.Int("batch-size", 240, "`pairs` of one step, for all workers together; or a few more, to divide them equally")
	steps      = flag.Int("steps", 2000, "`steps` to take")
	rate       = flag.Float64("learning-rate", 0.01, "`rate` of Adam")
)

func main() { trainer.Main(train) }

// model tells pairs of neighbours from random pairs by the product of vectors.
func model(b *nn.Builder, words, width, each int) {
	n, first, others := b.Batch()*each, b.Embedding("words", words, width, 0.5/float64(width)), b.Embedding("others", words, width, 0)
	products := b.Node(nn.RowDots(b.Lookup(first, "word", n), b.Lookup(others, "other", n)))
	b.BinaryCrossEntropy(products, b.InputOf("label", n))
}

func feed(grams []data.SkipGram) (trainer.Feed, error) {
	words, others, labels := data.SkipGramBatch(grams)
	return trainer.Feed{"word": nn.Batch(words), "other": nn.Batch(others), "label": nn.Batch(labels)}, nil
}

// train runs on each worker. The chief, worker 0, prints every hundredth step, and at the end similar words.
func train(ctx context.Context, job *trainer.Job) error {
	for name, wrong := range map[string]bool{"vocabulary": *vocabulary < 4, "dimension": *dimension < 1, "window": *window < 1,
		"negatives": *negatives < 1, "batch-size": *batch < 1, "steps": *steps < 0, "learning-rate": !(*rate > 0 && *rate <= math.MaxFloat32)} {
		if wrong {
			return fmt.Errorf("--%s is %v: out of range", name, flag.Lookup(name).Value)
		}
	}
	text, err := data.ReadText(*vocabulary, *file)
	if *file == "" {
		text, err = data.MakeTopics(job.Seed(), *vocabulary), nil
	}
	if err != nil {
		return fmt.Errorf("--text: %w", err)
	}
	words, err := text.Numbers(*near, 5)
	if err != nil {
		return fmt.Errorf("--near: %w", err)
	}
	size, build := job.EvenBatch(*batch), func(b *nn.Builder) { model(b, len(text.Words), *dimension, 1+*negatives) }
	shard, err := trainer.Shard(ctx, job, text.SkipGrams(job.Seed(), *window, *negatives), size)
	if err != nil {
		return err
	}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.Adam(*rate), trainer.Config{GlobalBatch: size})
	if err != nil {
		return err
	}
	for r, err := range session.Train(ctx, *steps, shard.Feed(feed)) {
		if err != nil {
			return err
		}
		if job.IsChief() && r.Step%100 == 0 {
			fmt.Printf("step %d | loss %.4f\n", r.Step, r.Loss)
		}
	}
	if !job.IsChief() {
		return nil
	}
	values, err := session.Values(ctx)
	for i := 0; err == nil && i < len(words); i++ {
		fmt.Printf("near %s | %v\n", text.Words[words[i]], text.Nearest(values["words"].Float32s(), words[i], 5))
	}
	return err
}
