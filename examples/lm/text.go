package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/random"
)

// text begins to read a row of words. A row is endless, and its words depend
// on its number alone. The most frequent words have the least numbers.
type text func(row int) (next func() int64)

// open finds out what is read, and of how many different words it is.
func (s *settings) open() (text, error) {
	if s.text == "" {
		return made{s.seed, s.vocabulary}.row, nil
	}
	ids, err := readWords(s.words, s.vocabulary)
	if err != nil {
		return nil, fmt.Errorf("--words: %w", err)
	}
	s.vocabulary = len(ids)
	var words []int64 // of all files
	for line, err := range data.Lines(strings.Split(s.text, ",")...).All() {
		if err != nil {
			return nil, fmt.Errorf("--text: %w", err)
		}
		for word := range strings.FieldsSeq(line + " " + sentence) {
			id, known := ids[word]
			if !known {
				id = ids[unknown]
			}
			words = append(words, int64(id))
		}
	}
	if len(words) < 2*s.batch {
		return nil, fmt.Errorf("--text: %d words for %d rows: want at least two for each", len(words), s.batch)
	}
	read := func(row int) func() int64 {
		at, _ := data.Range(len(words), row, s.batch)
		return func() int64 {
			word := words[at]
			at = (at + 1) % len(words)
			return word
		}
	}
	return read, s.check() // the vocabulary may be smaller now
}

// The word after each sentence, and the one for all that have no number.
const sentence, unknown = "<S>", "<UNK>"

// readWords numbers the first words of a vocabulary, and before them the
// special ones.
func readWords(file string, most int) (map[string]int, error) {
	ids := map[string]int{sentence: 0, unknown: 1}
	for line, err := range data.Lines(file).All() {
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(line)
		if len(fields) < 1 || len(fields) > 2 {
			return nil, fmt.Errorf("%s: %.80q: want a word, and its count or nothing", file, line)
		}
		if _, known := ids[fields[0]]; !known && len(ids) < most {
			ids[fields[0]] = len(ids)
		}
	}
	return ids, nil
}

// made is a text in which every second word, on the average, is the one that
// always follows the word before. The others are drawn by Zipf's law.
type made struct {
	seed  uint64
	words int
}

// zipf makes a word of a number in [0, 1): k about as often as 1/(k+1).
func (m made) zipf(u float64) int64 {
	return int64(min(int(math.Exp(u*math.Log(float64(m.words+1))))-1, m.words-1))
}

func (m made) following(word int64) int64 {
	u, _ := random.New(m.seed, "following").Pair(uint64(word))
	return m.zipf(u)
}

func (m made) row(i int) func() int64 {
	s, at, word := random.New(m.seed, "text").Derive(uint64(i)), uint64(0), int64(0)
	return func() int64 {
		rule, u := s.Pair(at)
		if at++; rule < 0.5 {
			word = m.following(word)
		} else {
			word = m.zipf(u)
		}
		return word
	}
}
