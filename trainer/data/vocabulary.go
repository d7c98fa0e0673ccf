package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// maxVocabulary bounds the tokens of a vocabulary: ids fit into an int32.
const maxVocabulary = 1 << 31

// Vocabulary numbers tokens. It does not change; any goroutine may use it.
type Vocabulary struct {
	tokens  []string
	ids     map[string]int
	unknown int
}

// ReadWords reads a vocabulary for ReadCorpus: a word on each line, alone or
// followed by its count. The words end and unknown get the ids 0 and 1, even if
// the file does not have them. The other words follow, the most frequent first:
// by their counts, or in the file's order if it has no counts. Words beyond
// most are left out. A word that occurs twice is an error.
func ReadWords(path string, most int, end, unknown string) (*Vocabulary, error) {
	return readFile(path, wordList{most, end, unknown}.decode)
}

// wordList says how a vocabulary file is read.
type wordList struct {
	most         int // words to read
	end, unknown string
}

func (w wordList) decode(s *source) (*Vocabulary, error) {
	all, err := w.counts(s)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(b.count, a.count) })
	v := &Vocabulary{ids: map[string]int{w.end: 0, w.unknown: 1}, tokens: []string{w.end, w.unknown}, unknown: 1}
	if len(v.ids) < 2 || w.most < 2 {
		return nil, fmt.Errorf("%s: at most %d words: want %q and another unknown word at least", s.name, w.most, w.end)
	}
	for _, c := range all {
		if _, special := v.ids[c.word]; !special && v.Len() < w.most {
			v.ids[c.word], v.tokens = v.Len(), append(v.tokens, c.word)
		}
	}
	return v, nil
}

// counted is a word of a vocabulary file.
type counted struct {
	word  string
	count uint64
	given bool // the file gives the count
}

// counts reads a file's words in their order.
func (w wordList) counts(s *source) (all []counted, err error) {
	seen := Vocabulary{ids: map[string]int{}} // by line
	l := lineReader{source: s, number: 1}
	err = l.check(func(line string) error {
		c, err := parseCounted(line)
		if err != nil {
			return err
		}
		if all = append(all, c); c.given != all[0].given {
			return fmt.Errorf("%.80q: want a count on every line, or on none", line)
		}
		return seen.add(c.word)
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: no words", s.name)
	}
	return all, err
}

func parseCounted(line string) (counted, error) {
	fields := slices.Collect(words(line))
	if len(fields) == 0 {
		return counted{}, errors.New("an empty line, want a word")
	}
	c := counted{word: fields[0], given: len(fields) > 1}
	var err error
	if c.given {
		c.count, err = strconv.ParseUint(fields[1], 10, 64)
	}
	if err != nil || len(fields) > 2 {
		return c, fmt.Errorf("%.80q: want a word, followed by its count or nothing", line)
	}
	return c, nil
}

func (v *Vocabulary) add(token string) error {
	if token == "" {
		return errors.New("an empty line, want a token")
	}
	if first, twice := v.ids[token]; twice {
		return fmt.Errorf("token %.80q is on line %d already", token, first+1)
	}
	if len(v.tokens) == maxVocabulary {
		return fmt.Errorf("more than %d tokens", int64(maxVocabulary))
	}
	v.ids[token] = len(v.tokens)
	v.tokens = append(v.tokens, token)
	return nil
}

// Len is the number of words, the unknown one included.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// ID returns a word's number, or the number of the unknown word.
func (v *Vocabulary) ID(token string) int {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return v.unknown
}

// Token returns the word with a number, 0 <= id < Len().
func (v *Vocabulary) Token(id int) string { return v.tokens[id] }
