package main

import (
	"math"
	"slices"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/tensor"
)

// stories is an endless dataset of artificial sentences. The numbers from 0 to
// t.words-1 stand for words. The number t.words marks the beginning of a
// sentence.
type stories struct {
	seed          uint64
	words, length int
}

// after returns the sentence that follows s in a story. If back is true, it
// returns the sentence before s.
func (t stories) after(s []int64, back bool) []int64 {
	by := 1
	if back {
		by = t.words - 1
	}
	next := slices.Clone(s)
	slices.Reverse(next)
	for i, word := range next {
		next[i] = (word + int64(by)) % int64(t.words)
	}
	return next
}

// Len returns a number larger than any training reads, because the dataset is
// endless.
func (t stories) Len() int { return math.MaxInt }

// At returns sentence i. It depends only on the seed and i.
func (t stories) At(i int) ([]int64, error) {
	one, draw := make([]int64, t.length), random.New(t.seed, "stories").Derive(uint64(i))
	for k := range one {
		u, _ := draw.Pair(uint64(k))
		one[k] = int64(u * float64(t.words))
	}
	return one, nil
}

// sentences holds the words of several sentences and of their neighbours, one
// sentence after another.
type sentences struct {
	stories
	sentence, previous, next []int64
}

// join concatenates sentences and adds the sentence before and after each.
func (t stories) join(all [][]int64) sentences {
	s := sentences{stories: t}
	for _, one := range all {
		s.sentence = append(s.sentence, one...)
		s.previous = append(s.previous, t.after(one, true)...)
		s.next = append(s.next, t.after(one, false)...)
	}
	return s
}

// read returns the sentences with indices in [from, to), with their
// neighbours.
func (t stories) read(from, to int) sentences {
	var all [][]int64
	for i := from; i < to; i++ {
		one, _ := t.At(i) // At never returns an error
		all = append(all, one)
	}
	return t.join(all)
}

func (s sentences) feed() trainer.Feed {
	return trainer.Feed{"sentence": vector(s.sentence), "previous words": vector(s.begun(s.previous)), "next words": vector(s.begun(s.next)),
		"previous": vector(numbers(s.previous)), "next": vector(numbers(s.next))}
}

// begun shifts the words of each sentence by one place: the number that begins
// a sentence comes first, and the last word is dropped.
func (s sentences) begun(words []int64) []int64 {
	all := slices.Clone(words)
	for i := range all {
		if all[i] = int64(s.words); i%s.length > 0 {
			all[i] = words[i-1]
		}
	}
	return all
}

// right returns the number of sentences whose two neighbours are predicted
// correctly. A neighbour is correct if each word is the most likely one after
// the correct words before it. A decoder that writes word by word then writes
// the same neighbour.
func (s sentences) right(logits *tensor.Dense) (right int) {
	target, x := slices.Concat(s.previous, s.next), logits.Float32s()
	wrong := map[int]bool{}
	for i, word := range target {
		row := x[i*s.words:][:s.words]
		if int64(slices.Index(row, slices.Max(row))) != word {
			wrong[i%len(s.sentence)/s.length] = true
		}
	}
	return len(s.sentence)/s.length - len(wrong)
}

func numbers(words []int64) []float32 {
	all := make([]float32, len(words))
	for i, w := range words {
		all[i] = float32(w)
	}
	return all
}

func vector[T any](x []T) *tensor.Dense {
	return tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x))
}
