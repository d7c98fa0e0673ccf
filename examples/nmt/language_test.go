package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sentences returns the sentences [from, to) of the language.
func (l language) sentences(from, to int) sentences {
	var all []sentence
	for i := from; i < to; i++ {
		one, _ := l.At(i) // never fails
		all = append(all, one)
	}
	return join(l.length, all)
}

// Sentences do not depend on how they are divided into batches. They have all
// lengths, and their translations match the task.
func TestSentences(t *testing.T) {
	for task, translate := range translations {
		l := language{seed: 3, words: 6, length: 4, translate: translate}
		s := l.sentences(10, 60)
		a, b := l.sentences(10, 27), l.sentences(27, 60)
		if !slices.Equal(s.source, append(a.source, b.source...)) || !slices.Equal(s.before, append(a.before, b.before...)) {
			t.Errorf("%s: cut in two the sentences differ", task)
		}
		lengths := map[int]int{}
		for i := 0; i < len(s.source); i += 4 {
			source, before, target := s.source[i:i+4], s.before[i:i+4], s.target[i:i+4]
			words := source[:(slices.Index(append(slices.Clone(source), end), end))]
			lengths[len(words)]++
			want := slices.Clone(words)
			if task == "sort" {
				slices.Sort(want)
			} else {
				slices.Reverse(want)
			}
			want = append(want, make([]int64, 4-len(words))...)
			if !slices.Equal(target, want) || !slices.Equal(before, append([]int64{begin}, want[:3]...)) {
				t.Fatalf("%s: %v became %v after %v", task, source, target, before)
			}
			for _, w := range words {
				if w < special || w >= special+6 {
					t.Fatalf("word %d", w)
				}
			}
		}
		if len(lengths) != 4 || lengths[0] > 0 {
			t.Errorf("%s: sentences by their length: %v", task, lengths)
		}
	}
}

// Each word of a translation is chosen from the words written before. A
// translation is correct only if every word is.
func TestRightFollowsWhatWasWritten(t *testing.T) {
	l := language{seed: 1, words: 3, length: 3, translate: translations["sort"]}
	s := l.sentences(0, 4)
	const classes = special + 3
	asked := 0
	right, err := s.right(func(f trainer.Feed) (trainer.Result, error) {
		before, logits := f["before"].Data().([]int64), make([]float32, 4*3*classes)
		for i := range 4 * 3 {
			word := s.target[i]
			if i == 3+1 {
				word = (word + 1) % classes // a wrong second word in the second sentence
			}
			logits[i*classes+int(word)] = 1
			if at := i % 3; at > 0 && at <= asked && i/3 != 1 && before[i] != s.target[i-1] || at == 0 && before[i] != begin {
				t.Errorf("after %d words the decoder was given %v", asked, before)
			}
		}
		asked++
		v := tensor.New(tensor.WithShape(12, classes), tensor.WithBacking(logits))
		return trainer.Result{Fetches: map[string][]gorgonia.Value{"logits": {v}}}, nil
	})
	if err != nil || right != 3 || asked != 3 {
		t.Errorf("%d right after %d questions, %v", right, asked, err)
	}
	broken := errors.New("broken")
	if _, err := s.right(func(trainer.Feed) (trainer.Result, error) { return trainer.Result{}, broken }); err != broken {
		t.Errorf("got %v", err)
	}
}
