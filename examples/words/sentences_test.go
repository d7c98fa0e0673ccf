package main

import (
	"math"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

func (l language) slices(from, to int) (words []int64, subjects []float32) {
	for i := from; i < to; i++ {
		s, _ := l.At(i) // never fails
		words, subjects = append(words, s.words...), append(subjects, s.subject)
	}
	return words, subjects
}

// Sentences are the same whoever makes them, however they are divided.
func TestSentencesDoNotDependOnTheSplit(t *testing.T) {
	l := language{vocabulary: 1000, length: 12, subjects: 8, seed: 3}
	words, subjects := l.slices(40, 100)
	for _, cuts := range [][]int{{40, 70, 100}, {40, 41, 55, 99, 100}} {
		var w []int64
		var s []float32
		for i := range cuts[1:] {
			a, b := l.slices(cuts[i], cuts[i+1])
			w, s = append(w, a...), append(s, b...)
		}
		if !slices.Equal(w, words) || !slices.Equal(s, subjects) {
			t.Errorf("cut at %v the sentences differ", cuts)
		}
	}
	l.seed++
	if other, _ := l.slices(40, 100); slices.Equal(other, words) {
		t.Error("two seeds give the same sentences")
	}
}

// Subjects come equally often, and a third of the words are the subject's own.
// Of both kinds, word k comes as often as the logarithm of (k+2)/(k+1) says.
func TestDistribution(t *testing.T) {
	const sentences, common, own = 20000, 100, 25
	l := language{vocabulary: 2 * common, length: 10, subjects: 4}
	words, subjects := l.slices(0, sentences)
	counts, bySubject := make([]float64, 2*common), make([]float64, 4)
	for i, w := range words {
		counts[w]++
		if about := int(subjects[i/10]); w >= common && (int(w)-common)/own != about {
			t.Fatalf("sentence %d about %d has word %d", i/10, about, w)
		}
	}
	for _, s := range subjects {
		bySubject[int(s)]++
	}
	for s, n := range bySubject {
		near(t, "subject", s, n, sentences, 1./4)
	}
	for w, n := range counts {
		part, k, of := 2./3, w, common
		if w >= common {
			part, k, of = 1./3/4, (w-common)%own, own
		}
		near(t, "word", w, n, float64(len(words)), part*random.ZipfChance(k, of))
	}
}

// near allows six deviations of a binomial distribution.
func near(t *testing.T, what string, i int, n, of, p float64) {
	t.Helper()
	if math.Abs(n-of*p) > 6*math.Sqrt(of*p*(1-p)) {
		t.Errorf("%s %d came %v times of %v, want about %.0f", what, i, n, of, of*p)
	}
}

// Every word is in the table, also with the fewest words there may be.
func TestWordsAreInTheVocabulary(t *testing.T) {
	for _, l := range []language{{4, 5, 2, 1}, {5, 3, 2, 1}, {17, 9, 8, 2}, {1 << 40, 4, 3, 5}} {
		words, subjects := l.slices(0, 500)
		if len(words) != 500*l.length || len(subjects) != 500 {
			t.Fatalf("%+v: %d words, %d subjects", l, len(words), len(subjects))
		}
		if least, most := slices.Min(words), slices.Max(words); least < 0 || most >= int64(l.vocabulary) {
			t.Errorf("%+v: words %d to %d", l, least, most)
		}
		if least, most := slices.Min(subjects), slices.Max(subjects); least != 0 || int(most) != l.subjects-1 {
			t.Errorf("%+v: subjects %v to %v", l, least, most)
		}
	}
}
