package main

import (
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/tensor"
)

// language generates sentences. The first half of the words is common to all
// subjects, the second half is divided among them.
type language struct {
	vocabulary int // words, at least two per subject
	length     int // words of a sentence
	subjects   int
	seed       uint64
}

// sentences makes the sentences [from, to). It returns the indices of their
// words, one sentence after the other, and their subjects. A sentence depends
// only on the seed and its number.
func (l language) sentences(from, to int) (words, subjects tensor.Tensor) {
	index := make([]int64, 0, (to-from)*l.length)
	subject := make([]float32, 0, to-from)
	for i := from; i < to; i++ {
		draw := random.New(l.seed, "sentences").Derive(uint64(i))
		_, u := draw.Pair(uint64(l.length))
		about := min(int(u*float64(l.subjects)), l.subjects-1)
		for at := range l.length {
			index = append(index, l.word(draw, at, about))
		}
		subject = append(subject, float32(about))
	}
	return tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index)),
		tensor.New(tensor.WithShape(len(subject)), tensor.WithBacking(subject))
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
