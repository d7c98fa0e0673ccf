package main

import (
	"slices"
	"testing"

	"gorgonia.org/tensor"
)

// The sentence after the sentence before s is s.
func TestNeighboursAreInOneStory(t *testing.T) {
	stories := stories{seed: 2, words: 5, length: 3}
	s := stories.read(4, 40)
	a, b := stories.read(4, 11), stories.read(11, 40)
	if !slices.Equal(s.next, append(a.next, b.next...)) || !slices.Equal(s.previous, append(a.previous, b.previous...)) {
		t.Error("cut in two the sentences differ")
	}
	for i := 0; i < len(s.sentence); i += 3 {
		one, previous, next := s.sentence[i:i+3], s.previous[i:i+3], s.next[i:i+3]
		if !slices.Equal(stories.after(previous, false), one) || !slices.Equal(stories.after(next, true), one) {
			t.Errorf("%v comes after %v and before %v", one, previous, next)
		}
	}
	if got := stories.after([]int64{0, 1, 4}, false); !slices.Equal(got, []int64{0, 2, 1}) {
		t.Errorf("after 0 1 4 comes %v", got)
	}
	if got := s.begun([]int64{1, 2, 3, 4, 0, 1}); !slices.Equal(got, []int64{5, 1, 2, 5, 4, 0}) {
		t.Errorf("begun: %v", got)
	}
}

// A sentence counts as correct only if all words of both neighbours are
// correct.
func TestRight(t *testing.T) {
	s := stories{seed: 2, words: 5, length: 3}.read(0, 4)
	target := slices.Concat(s.previous, s.next)
	logits := make([]float32, len(target)*5)
	for i, word := range target {
		logits[i*5+int(word)] = 1
	}
	x := tensor.New(tensor.WithShape(len(target), 5), tensor.WithBacking(logits))
	for i, want := range []int{4, 3, 3, 2} {
		if i > 0 {
			at := []int{0, 4, 12 + 4, 12 + 11}[i] // a word index in the neighbours of sentences 1, 1 and 3
			clear(logits[at*5 : at*5+5])
			logits[at*5+int(target[at]+1)%5] = 1
		}
		if got := s.right(x); got != want {
			t.Errorf("%d wrong words: %d right, want %d", i, got, want)
		}
	}
}
