package data

import (
	"math"
	"testing"
)

// About half of the words must be the fixed successor of the previous word.
// Rows must differ, and each must be reproducible.
func TestMadeText(t *testing.T) {
	m := MakeText(3, 1000)
	a, again, other := m.Row(1, 0), m.Row(1, 0), m.Row(2, 0)
	follows, same, word := 0, 0, int64(0)
	const n = 20000
	for range n {
		next := a()
		if next != again() {
			t.Fatal("a row is not the same twice")
		}
		if next < 0 || next >= 1000 {
			t.Fatalf("word %d", next)
		}
		if next == m.following(word) {
			follows++
		}
		if next == other() {
			same++
		}
		word = next
	}
	if follows < n/2-300 || follows > n*6/10 || same > n/5 {
		t.Errorf("of %d words %d follow, %d are those of another row", n, follows, same)
	}
	if m.Row(0, 0)() == MakeText(4, 1000).Row(0, 0)() && m.Row(5, 0)() == MakeText(4, 1000).Row(5, 0)() {
		t.Error("two seeds give the same words")
	}
}

// Perplexity must agree with that of a model that has counted all pairs of
// words in a long text, measured on other text.
func TestMadeTextPerplexity(t *testing.T) {
	for _, words := range []int{1, 2, 10, 30} {
		const read = 400000
		m, pairs := MakeText(7, words), make([][]float64, words)
		for i := range pairs {
			pairs[i] = make([]float64, words+1) // the last element is the sum of the others
		}
		count := func(row int, each func(word, next int64)) {
			text := m.Row(row, 0)
			for i, word := 0, text(); i < read; i++ {
				next := text()
				each(word, next)
				word = next
			}
		}
		count(0, func(word, next int64) { pairs[word][next]++; pairs[word][words]++ })
		entropy := 0.0
		count(1, func(word, next int64) {
			entropy -= math.Log((pairs[word][next]+0.1)/(pairs[word][words]+0.1*float64(words))) / read
		})
		if want := math.Exp(entropy); math.Abs(m.Perplexity()/want-1) > 0.01 {
			t.Errorf("%v, counted %.3f", m, want)
		}
	}
	if got, want := MakeText(0, 0).String(), "made of 1 words, with a perplexity of 1.00 at best"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := MakeText(0, 1<<50).String(), "made of 1125899906842624 words"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A row that begins after some words must continue like a row that has read
// these words.
func TestMadeTextRowSkipsWords(t *testing.T) {
	made := MakeText(3, 50)
	for row := range 3 {
		whole := made.Row(row, 0)
		for skip := range 200 {
			part := made.Row(row, skip)
			for range 3 {
				part()
			}
			if want, got := made.Row(row, skip+3)(), part(); got != want {
				t.Fatalf("row %d: word %d is %d behind %d words, and %d behind all before it", row, skip+3, got, skip, want)
			}
			if want, got := whole(), made.Row(row, skip)(); got != want {
				t.Fatalf("row %d: word %d is %d, and %d where the row is read from the start", row, skip, got, want)
			}
		}
	}
}
