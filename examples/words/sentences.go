package main

import (
	"math"

	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/tensor"
)

// sentences makes the sentences [from, to): the indices of their words, one
// sentence after the other, and their subjects. A sentence follows from the
// seed and its number alone.
func (s *settings) sentences(from, to int) (words, subjects tensor.Tensor) {
	index := make([]int64, 0, (to-from)*s.length)
	subject := make([]float32, 0, to-from)
	for i := from; i < to; i++ {
		draw := random.New(s.seed, "sentences").Derive(uint64(i))
		_, u := draw.Pair(uint64(s.length))
		about := min(int(u*float64(s.subjects)), s.subjects-1)
		for at := range s.length {
			index = append(index, s.word(draw, at, about))
		}
		subject = append(subject, float32(about))
	}
	return tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index)),
		tensor.New(tensor.WithShape(len(subject)), tensor.WithBacking(subject))
}

// word is one of the subject's own words in a third of all places, else a
// common one: word number n as often as 1/n.
func (s *settings) word(draw random.Stream, at, about int) int64 {
	kind, u := draw.Pair(uint64(at))
	own := s.vocabulary / 2 / s.subjects // words of each subject, in the second half
	if kind < 1./3 {
		return int64(s.vocabulary/2 + about*own + int(u*float64(own)))
	}
	return int64(math.Exp(u*math.Log(float64(s.vocabulary/2)))) - 1
}
