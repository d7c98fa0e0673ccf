package data

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxLine bounds one line of a text, in bytes.
const maxLine = 1 << 20

// Lines returns the lines of texts in UTF-8, packed with gzip or not, one file
// after the other, without line ends. Each range over it opens the files again
// and holds one line in memory. A line of more than 1 MiB is an error: the file
// is probably not a text.
func Lines(paths ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, path := range paths {
			if !linesOf(path, yield) {
				return
			}
		}
	}
}

// linesOf yields the lines of a file, or the error. It reports whether to go on.
func linesOf(path string, yield func(string, error) bool) bool {
	stopped := false
	_, err := readFile(path, func(s *source) (none struct{}, err error) {
		l := lineReader{source: s, number: 1}
		return none, l.each(func(line string) bool {
			stopped = !yield(line, nil)
			return !stopped
		})
	})
	if err != nil && !stopped {
		yield("", err)
	}
	return err == nil && !stopped
}

// lineReader reads lines of a source.
type lineReader struct {
	*source
	number int    // of the next line, counted from 1
	long   []byte // memory for a line that is longer than the reader's buffer
}

// byteOrderMark begins some texts in UTF-8. It is not part of the first line.
const byteOrderMark = "\ufeff"

// each passes lines to yield until yield returns false.
func (l *lineReader) each(yield func(string) bool) error {
	for {
		line, err := l.next()
		if err == io.EOF {
			return nil
		}
		if err == nil && !utf8.Valid(line) {
			err = l.wrong(errors.New("not a text in UTF-8"))
		}
		if err != nil {
			return err
		}
		text := bytes.TrimSuffix(line, []byte("\r"))
		if l.offset == 0 {
			text = bytes.TrimPrefix(text, []byte(byteOrderMark))
		}
		if !yield(string(text)) {
			return nil
		}
		l.passed(int64(len(line)) + 1)
		l.number++
	}
}

// check passes every line to do. An error of do names the line.
func (l *lineReader) check(do func(line string) error) error {
	var wrong error
	err := l.each(func(line string) bool {
		wrong = do(line)
		return wrong == nil
	})
	if wrong != nil {
		return l.wrong(wrong)
	}
	return err
}

// next returns the next line without its end, valid until the next call, or
// io.EOF. The offset stays at the beginning of the line.
func (l *lineReader) next() ([]byte, error) {
	l.long = l.long[:0]
	for {
		piece, err := l.reader.ReadSlice('\n')
		if len(l.long)+len(piece) > maxLine {
			return nil, l.wrong(fmt.Errorf("a line of more than %d bytes", maxLine))
		}
		if err == nil && len(l.long) == 0 {
			return piece[:len(piece)-1], nil
		}
		l.long = append(l.long, piece...)
		switch {
		case err == nil:
			return l.long[:len(l.long)-1], nil
		case err == io.EOF && len(l.long) > 0:
			return l.long, nil
		case err == io.EOF:
			return nil, err
		case err != bufio.ErrBufferFull:
			return nil, l.because(err)
		}
	}
}

func (l *lineReader) wrong(cause error) error {
	return &formatError{file: l.name, line: l.number, offset: l.offset, cause: cause}
}

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
