package main

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
)

// open returns the sentences for training, the sentences that are translated
// after the training, and the number of words of the language. With text
// files, this is the number of words in the vocabulary.
func (s *settings) open(job *trainer.Job, skipped *data.Skipped) (learnt, tested data.Dataset[sentence], n int, err error) {
	if s.source == "" {
		l := language{seed: job.Seed(), words: s.words, length: s.length, translate: translations[s.task]}
		tested, err = data.Part(l, s.steps*s.batch, s.steps*s.batch+mostTested)
		return l, tested, s.words, err
	}
	words, err := data.ReadWords(s.list, s.words+1, "<S>", "<UNK>")
	if err != nil {
		return nil, nil, 0, fmt.Errorf("--words: %w", err)
	}
	pairs, err := s.pairs()
	if err != nil {
		return nil, nil, 0, err
	}
	all := data.SkipCorrupt(data.Map(pairs, func(p data.Pair) (sentence, error) {
		return sentence{s.numbers(words, p.Source), s.numbers(words, p.Target)}, nil
	}), skipped)
	last := max(1, min(mostTested, all.Len()/10))
	if tested, err = data.Part(all, all.Len()-last, all.Len()); err != nil {
		return nil, nil, 0, err
	}
	if learnt, err = data.Part(all, 0, all.Len()-last); err == nil {
		learnt, err = data.Epochs(learnt, s.batch, job.Seed())
	}
	return learnt, tested, words.Len() - 1, err // minus 1 for <S>, which stands for the end of a sentence
}

// pairs opens the source and target files and interleaves the lines of all
// pairs of files.
func (s *settings) pairs() (data.Dataset[data.Pair], error) {
	sources, targets := strings.Split(s.source, ","), strings.Split(s.target, ",")
	if len(sources) != len(targets) {
		return nil, fmt.Errorf("--source has %d files and --target %d: want as many", len(sources), len(targets))
	}
	var files []data.Dataset[data.Pair]
	for i := range sources {
		file, err := data.OpenParallel(sources[i], targets[i])
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return data.Interleave(files...), nil
}

// numbers returns the word numbers of a line, cut or padded to s.length words.
func (s *settings) numbers(words *data.Vocabulary, line string) []int64 {
	all := make([]int64, s.length)
	for i, word := range strings.Fields(line) {
		if i < s.length {
			all[i] = special + int64(max(1, words.ID(word))-1) // <S>, which stands for the end of a sentence and has number 0, is not a word, so it counts as unknown
		}
	}
	return all
}
