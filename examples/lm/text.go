package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/random"
)

// feeder makes the feeds of a worker's rows of text.
type feeder struct {
	network
	job         *trainer.Job
	sampler     *nn.Sampler
	rows        []func() int64 // by row: returns the next word
	last        []int64        // by row: the last word that was fed
	state, cell *tensor.Dense  // state and cell at the beginning of the next step
}

func newFeeder(ctx context.Context, n network, t text, job *trainer.Job, r *trainer.Replica) (*feeder, error) {
	from, to := r.Rows()
	first := func(width int) *tensor.Dense { return tensor.New(tensor.Of(n.dtype), tensor.WithShape(to-from, width)) }
	sampler, err := nn.NewSampler(n.vocabulary, n.drawn)
	f := &feeder{network: n, job: job, sampler: sampler, state: first(n.width), cell: first(n.hidden)}
	for row := from; row < to; row++ {
		f.rows = append(f.rows, t(row, r.Steps()*n.length))
		f.last = append(f.last, f.rows[row-from]())
	}
	return f, errors.Join(err, r.Carry(ctx, "state", f.state), r.Carry(ctx, "cell", f.cell))
}

// feed returns the feed of a step. Its state and cell are right once carry has
// seen the step before.
func (f *feeder) feed(step int) (trainer.Feed, error) {
	var words, targets []int64
	for i, next := range f.rows {
		for range f.length {
			words, f.last[i] = append(words, f.last[i]), next()
			targets = append(targets, f.last[i])
		}
	}
	samples, logs, labelLogs := f.sampler.Draw(random.New(f.seed, "samples").Derive(uint64(step)), f.job.ShardID(), f.job.NumReplicasPerWorker(), targets)
	return trainer.Feed{"state": f.state, "cell": f.cell,
		"word": vector(words), "target": vector(targets), "label": vector(targets), "label log": vector(labelLogs),
		"sample": vector(samples), "class": vector(samples), "class log": vector(logs)}, nil
}

// carry keeps the state and cell at the end of the sequences for the next step.
func (f *feeder) carry(r trainer.Result) {
	for name, to := range map[string]*tensor.Dense{"state": f.state, "cell": f.cell} {
		into := to.Float32s()
		for _, v := range r.Fetches[name] {
			into = into[copy(into, v.Data().([]float32)):]
		}
	}
}

func vector[T any](x []T) *tensor.Dense { return tensor.New(tensor.WithBacking(x)) }

// text begins to read an endless row of words after its first skip words.
type text func(row, skip int) (next func() int64)

// open returns the text and its description. The text is artificial, or read
// from files, which may have fewer different words than --vocabulary.
func (s *settings) open() (text, fmt.Stringer, error) {
	if s.text == "" {
		made := data.MakeText(s.seed, s.vocabulary)
		return made.Row, made, nil
	}
	words, err := data.ReadWords(s.words, s.vocabulary, "<S>", "<UNK>") // the ends of sentences, and unknown words
	if err != nil {
		return nil, nil, fmt.Errorf("--words: %w", err)
	}
	if s.network = s.of(words.Len()); s.vocabulary < 2*s.drawn {
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
