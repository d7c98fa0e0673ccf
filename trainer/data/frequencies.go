package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ReadWords reads a vocabulary for ReadCorpus: a word on each line, alone or
// before its count. The words end and unknown get the ids 0 and 1, whether the
// file has them or not; then come the others, the most frequent first: by
// their counts, or as they stand where lines have none. Of more words than
// most, the last ones are left out. A word that is there twice is an error.
func ReadWords(path string, most int, end, unknown string) (*Vocabulary, error) {
	return readFile(path, func(s *source) (*Vocabulary, error) { return decodeWords(s, most, end, unknown) })
}

func decodeWords(s *source, most int, end, unknown string) (*Vocabulary, error) {
	all, err := decodeCounted(s)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(b.count, a.count) })
	v := &Vocabulary{ids: map[string]int{end: 0, unknown: 1}, tokens: []string{end, unknown}, unknown: 1}
	if len(v.ids) < 2 || most < 2 {
		return nil, fmt.Errorf("%s: at most %d words: want %q and another unknown word at least", s.name, most, end)
	}
	for _, c := range all {
		if _, special := v.ids[c.word]; !special && v.Len() < most {
			v.ids[c.word], v.tokens = v.Len(), append(v.tokens, c.word)
		}
	}
	return v, nil
}

// counted is a word of a vocabulary file, and how often it comes.
type counted struct {
	word  string
	count uint64
	given bool // the file has the count
}

// decodeCounted reads a file's words in its order.
func decodeCounted(s *source) (all []counted, err error) {
	seen := Vocabulary{ids: map[string]int{}} // by line
	err = eachLine(s, func(line string) error {
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
		return c, fmt.Errorf("%.80q: want a word, and behind it its count or nothing", line)
	}
	return c, nil
}
