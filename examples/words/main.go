// Command words learns which subject a sentence is about from the words in
// it. The words' vectors are an embedding: only the rows that a batch touches
// travel, however long the vocabulary:
//
//	plx launch --hosts resources.txt ./examples/words --vocabulary 1000000
//
// The sentences are made: every subject has words of its own, and common
// words are drawn by Zipf's law.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// settings are the program's flags.
type settings struct {
	vocabulary, width, length, subjects, batch, steps int

	rate float64
	seed uint64 // the trainer's flag
}

func main() {
	var s settings
	flag.IntVar(&s.vocabulary, "vocabulary", 10000, "different `words`")
	flag.IntVar(&s.width, "width", 16, "`elements` of a word's vector")
	flag.IntVar(&s.length, "length", 12, "`words` of a sentence")
	flag.IntVar(&s.subjects, "subjects", 8, "different `subjects`")
	flag.IntVar(&s.batch, "batch-size", 64, "`sentences` of one step, over all workers together")
	flag.IntVar(&s.steps, "steps", 300, "`steps` to take")
	flag.Float64Var(&s.rate, "learning-rate", 0.02, "`rate` of Adam")
	trainer.Main(s.train)
}

func (s *settings) check() error {
	if s.vocabulary < 2*s.subjects || s.subjects < 2 {
		return errors.New("--vocabulary: want at least two words per subject, and --subjects at least 2")
	}
	if s.width < 1 || s.length < 1 || s.batch < 1 || s.steps < 0 || !(s.rate > 0) {
		return errors.New("--width, --length, --batch-size, --steps and --learning-rate: want positive numbers")
	}
	return nil
}

// train is one worker's part. The chief prints each fiftieth step.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	s.seed = job.Seed()
	replica, err := job.Parallelize(ctx, s.build, trainer.Adam(s.rate), trainer.GlobalBatch(s.batch), trainer.ClipNorm(1))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	for replica.Steps() < s.steps {
		step := replica.Steps()
		words, subjects := s.sentences(step*s.batch+from, step*s.batch+to)
		result, err := replica.Step(ctx, trainer.Feed{"word": words, "subject": subjects})
		if err != nil {
			return err
		}
		if job.IsChief() && step%50 == 0 {
			fmt.Printf("step %d | loss %.4f\n", step, result.Loss)
		}
	}
	return nil
}

// build averages the vectors of a sentence's words and classifies that.
func (s *settings) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	table := &trainer.Embedding{Name: "words", Rows: s.vocabulary, Width: s.width, First: trainer.UniformRows(s.seed, -0.1, 0.1)}
	words, err := table.Lookup(g, "word", batch*s.length)
	if err != nil {
		return trainer.Model{}, err
	}
	subject := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("subject"), gorgonia.WithShape(batch))
	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(s.width, s.subjects),
		gorgonia.WithInit(trainer.GlorotUniform(s.seed, "w")))
	b := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("b"), gorgonia.WithShape(s.subjects),
		gorgonia.WithInit(trainer.Zeros()))
	sentences, err := gorgonia.Reshape(words, tensor.Shape{batch, s.length, s.width})
	if err != nil {
		return trainer.Model{}, err
	}
	mean, err := gorgonia.Mean(sentences, 1)
	if err != nil {
		return trainer.Model{}, err
	}
	logits, err := nn.Linear(mean, w, b)
	if err != nil {
		return trainer.Model{}, err
	}
	loss, err := nn.CrossEntropy(logits, subject)
	return trainer.Model{
		Inputs: gorgonia.Nodes{subject}, Variables: gorgonia.Nodes{w, b},
		Embeddings: []*trainer.Embedding{table}, Loss: loss,
	}, err
}
