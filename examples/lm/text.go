package main

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/data"
)

// text begins to read an endless row of words after its first skip words.
type text func(row, skip int) (next func() int64)

// open returns the text and its description. The text is artificial, or read
// from files, which may have fewer different words than --vocabulary.
func (s *settings) open() (text, fmt.Stringer, error) {
	if s.text == "" {
		made := data.MakeText(s.seed, s.vocabulary)
		return made.Row, made, nil
	}
	words, err := data.ReadWords(s.words, s.vocabulary, "<S>", "<UNK>") // the ends of sentences, and unknown words
	if err != nil {
		return nil, nil, fmt.Errorf("--words: %w", err)
	}
	if s.network = s.of(words.Len()); s.vocabulary < 2*s.drawn {
		return nil, nil, fmt.Errorf("--samples is %d: want at most half of the %d words of %s", s.drawn, s.vocabulary, s.words)
	}
	corpus, err := data.ReadCorpus(words, "<S>", strings.Split(s.text, ",")...)
	if err != nil {
		return nil, nil, fmt.Errorf("--text: %w", err)
	}
	if corpus.Len() < 2*s.batch {
		return nil, nil, fmt.Errorf("--text: %d words for %d rows: want at least two for each", corpus.Len(), s.batch)
	}
	return func(row, skip int) func() int64 { return corpus.Row(row, s.batch, skip) }, corpus, nil
}
