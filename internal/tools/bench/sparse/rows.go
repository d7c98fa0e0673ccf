package main

import (
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/random"
)

// Rows is the average number of rows of each table that one worker uses in a
// step. Words counts the rows of the words that it reads. Classes counts the
// rows of the words to predict and of the words sampled for the softmax.
type Rows struct {
	Words   float64
	Classes float64
	Part    float64 // the sum of Words and Classes, as a fraction of the rows of both tables
}

// countRows counts the rows that a worker's batches use. It makes the same
// artificial text and samples as examples/lm without a text file.
func countRows(m modelSettings) (Rows, error) {
	sampler, err := ops.NewSampler(m.Vocabulary, m.Samples)
	if err != nil {
		return Rows{}, err
	}
	text := data.MakeText(0, m.Vocabulary)
	made, last := make([]func() int64, m.Batch), make([]int64, m.Batch)
	for i := range made {
		made[i] = text.Row(i, 0)
		last[i] = made[i]()
	}
	var r Rows
	const steps = 50
	for step := range uint64(steps) {
		words, classes := map[int64]bool{}, map[int64]bool{}
		var targets []int64
		for i, next := range made {
			for range m.Length {
				words[last[i]] = true
				last[i] = next()
				targets, classes[last[i]] = append(targets, last[i]), true
			}
		}
		samples, _, _ := sampler.Draw(random.New(0, "samples").Derive(step), 0, 1, targets)
		for _, k := range samples {
			classes[k] = true
		}
		r.Words, r.Classes = r.Words+float64(len(words))/steps, r.Classes+float64(len(classes))/steps
	}
	r.Part = (r.Words + r.Classes) / float64(2*m.Vocabulary)
	return r, nil
}
