package main

import (
	"math"
	"slices"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/tensor"
)

// translations maps each value of --task to a function that replaces the words
// of a sentence by their translation.
var translations = map[string]func(words []int64){
	"reverse": slices.Reverse[[]int64],
	"sort":    slices.Sort[[]int64],
}

// sentence is a source sentence and its translation, both padded to the same
// length.
type sentence struct{ source, target []int64 }

// language is an endless dataset of artificial sentences with their
// translations.
type language struct {
	seed          uint64
	words, length int
	translate     func(words []int64)
}

// Len returns a number larger than any training reads, because the dataset is
// endless.
func (l language) Len() int { return math.MaxInt }

// At returns sentence i. It depends only on the seed and i.
func (l language) At(i int) (sentence, error) {
	draw := random.New(l.seed, "sentences").Derive(uint64(i))
	u, _ := draw.Pair(0)
	source := make([]int64, l.length)
	words := source[:1+int(u*float64(l.length))]
	for k := range words {
		_, u := draw.Pair(uint64(k + 1))
		words[k] = special + int64(u*float64(l.words))
	}
	target := slices.Clone(source)
	l.translate(target[:len(words)])
	return sentence{source, target}, nil
}

// sentences holds the words of several sentences, one sentence after another.
// Each sentence has length words.
type sentences struct {
	length                 int
	source, before, target []int64
}

// join concatenates sentences that are all padded to length words.
func join(length int, all []sentence) sentences {
	s := sentences{length: length}
	for _, one := range all {
		s.source, s.target = append(s.source, one.source...), append(s.target, one.target...)
		s.before = append(append(s.before, begin), one.target[:length-1]...)
	}
	return s
}

func (s sentences) feed() trainer.Feed {
	mask, target := make([]float32, len(s.source)), make([]float32, len(s.source))
	for i, word := range s.source {
		if target[i] = float32(s.target[i]); word != end {
			mask[i] = 1
		}
	}
	return trainer.Feed{"source": vector(s.source), "before": vector(s.before), "target": vector(target),
		"mask": tensor.New(tensor.WithShape(len(mask)/s.length, s.length), tensor.WithBacking(mask))}
}

func vector[T any](x []T) *tensor.Dense {
	return tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x))
}

// right translates the source sentences and returns the number of completely
// correct translations. It chooses one word after another: the word that is
// most likely after the words chosen so far.
func (s sentences) right(evaluate func(trainer.Feed) (trainer.Result, error)) (right int, err error) {
	s.before = slices.Repeat([]int64{begin}, len(s.source))
	written := make([]int64, len(s.source))
	for at := range s.length {
		result, err := evaluate(s.feed())
		if err != nil {
			return 0, err
		}
		logits := result.Fetches["logits"][0].(*tensor.Dense)
		classes := logits.Shape()[1]
		for i := at; i < len(written); i += s.length {
			row := logits.Float32s()[i*classes:][:classes]
			written[i] = int64(slices.Index(row, slices.Max(row)))
			if at+1 < s.length {
				s.before[i+1] = written[i]
			}
		}
	}
	for i := 0; i < len(written); i += s.length {
		if slices.Equal(written[i:i+s.length], s.target[i:i+s.length]) {
			right++
		}
	}
	return right, nil
}
