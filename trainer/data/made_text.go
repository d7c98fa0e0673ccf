package data

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/random"
)

// MadeText is an endless artificial text. On average, every second word is the
// one that always follows the word before it. The other words are drawn by
// Zipf's law: words are numbered by how often they are drawn. The text depends
// only on the seed.
type MadeText struct {
	seed  uint64
	words int
}

// MakeText makes a text of a number of different words, at least one.
func MakeText(seed uint64, words int) MadeText { return MadeText{seed, max(1, words)} }

// Row begins to read the text at one of many places, after its first skip
// words. Rows share only the rule.
func (m MadeText) Row(row, skip int) (next func() int64) {
	s, at, word := random.New(m.seed, "text").Derive(uint64(row)), skip, int64(0)
	for ; at > 0; at-- { // go back to a word that was drawn
		if rule, _ := s.Pair(uint64(at)); rule >= 0.5 {
			break
		}
	}
	next = func() int64 {
		rule, u := s.Pair(uint64(at))
		if at++; rule < 0.5 {
			word = m.following(word)
		} else {
			word = int64(random.Zipf(u, m.words))
		}
		return word
	}
	for at < skip {
		next()
	}
	return next
}

func (m MadeText) following(word int64) int64 {
	u, _ := random.New(m.seed, "following").Pair(uint64(word))
	return int64(random.Zipf(u, m.words))
}

// Perplexity is the least perplexity that a model of the text can reach. It is
// the exponential of the mean entropy of the next word, over all words as often
// as they occur.
func (m MadeText) Perplexity() float64 {
	chance, following := make([]float64, m.words), make([]int64, m.words)
	drawn := 0.0 // sum of the surprises of words that are only drawn
	for k := range chance {
		chance[k], following[k] = random.ZipfChance(k, m.words), m.following(int64(k))
		drawn += surprise(chance[k] / 2)
	}
	mean := 0.0
	for word, p := range m.often(chance, following) {
		q := chance[following[word]] / 2
		mean += p * (drawn - surprise(q) + surprise(q+0.5))
	}
	return math.Exp(mean)
}

// String describes the number of words, and the perplexity if it is quick to
// compute.
func (m MadeText) String() string {
	about := fmt.Sprintf("made of %d words", m.words)
	if m.words <= 1<<20 {
		about += fmt.Sprintf(", with a perplexity of %.2f at best", m.Perplexity())
	}
	return about
}

// often computes how often each word occurs. A drawn word does not depend on
// the words before it, so the error of the first guess halves in each round.
func (m MadeText) often(chance []float64, following []int64) []float64 {
	often, next := append([]float64{}, chance...), make([]float64, m.words)
	for range 60 {
		for k, p := range chance {
			next[k] = p / 2
		}
		for word, p := range often {
			next[following[word]] += p / 2
		}
		often, next = next, often
	}
	return often
}

func surprise(p float64) float64 { return -p * math.Log(p) }
