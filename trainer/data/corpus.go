package data

import (
	"fmt"
	"iter"
	"strings"
)

// Corpus is a text as the numbers of its words, 4 bytes each. It does not
// change; any goroutine may use it.
type Corpus struct {
	numbers []int32
	unknown int
}

// ReadCorpus reads texts in UTF-8, packed with gzip or not, one after the
// other. Each line is a sentence with spaces between its words, as in the one
// billion word benchmark. ReadCorpus adds the word end after each sentence; it
// must be in the vocabulary. It skips lines without words. It refuses a text
// without words or without a word of the vocabulary.
func ReadCorpus(v *Vocabulary, end string, paths ...string) (*Corpus, error) {
	last, ok := v.ids[end]
	if !ok {
		return nil, fmt.Errorf("read a text: the word %q, which ends sentences, is not in the vocabulary", end)
	}
	c, sentences := &Corpus{}, 0
	for line, err := range Lines(paths...) {
		if err != nil {
			return nil, err
		}
		if before := len(c.numbers); c.add(v, words(line)) > before {
			c.numbers, sentences = append(c.numbers, int32(last)), sentences+1
		}
	}
	if n := len(c.numbers) - sentences; n == c.unknown {
		what := "no words"
		if n > 0 {
			what = "none of its words is in the vocabulary"
		}
		return nil, fmt.Errorf("%s: %s", strings.Join(paths, ", "), what)
	}
	return c, nil
}

// add adds the words of a line and returns the number of words so far.
func (c *Corpus) add(v *Vocabulary, words iter.Seq[string]) int {
	for word := range words {
		id, known := v.ids[word]
		if !known {
			id = v.unknown
			c.unknown++
		}
		c.numbers = append(c.numbers, int32(id))
	}
	return len(c.numbers)
}

// words returns the pieces of a line between blanks. Only ASCII blanks divide
// words: an unbreakable space is part of a word.
func words(line string) iter.Seq[string] {
	return strings.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' })
}

// Len is the number of words, ends of sentences included.
func (c *Corpus) Len() int { return len(c.numbers) }

// Unknown is the number of words that are not in the vocabulary.
func (c *Corpus) Unknown() int { return c.unknown }

// String describes both numbers.
func (c *Corpus) String() string {
	return fmt.Sprintf("%d words, %.1f %% of them not in the vocabulary", c.Len(), 100*float64(c.unknown)/float64(c.Len()))
}

// Row begins to read one of `of` rows after its first skip words. The rows
// begin where the pieces of Range do. A row has no end: the text's first word
// follows its last.
func (c *Corpus) Row(row, of, skip int) (next func() int64) {
	at, _ := Range(len(c.numbers), row, of)
	at = (at + skip) % len(c.numbers)
	return func() int64 {
		word := c.numbers[at]
		at = (at + 1) % len(c.numbers)
		return int64(word)
	}
}
