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

// maxLine is the largest accepted length of a text line, in bytes.
const maxLine = 1 << 20

// byteOrderMark is at the beginning of some UTF-8 texts. Readers remove it
// from the first line.
const byteOrderMark = "\ufeff"

var errStopped = errors.New("the caller wants no more lines")

// lines returns an iterator over the lines of UTF-8 texts, in the order of
// paths, without line ends. The files may be compressed with gzip. Each loop
// opens the files again and holds one line in memory. A line longer than 1 MiB
// is an error: the file is probably not a text.
func lines(paths ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, path := range paths {
			_, err := readFile(path, func(s *source) (none struct{}, err error) {
				return none, s.lines(func(line string) error {
					if !yield(line, nil) {
						return errStopped
					}
					return nil
				})
			})
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield("", err)
				return
			}
		}
	}
}

// lines calls do with every line of the text, without its line end. It adds
// the line number to an error of do.
func (s *source) lines(do func(line string) error) error {
	reader := bufio.NewReaderSize(s, maxLine)
	for number := 1; ; number++ {
		line, err := reader.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == bufio.ErrBufferFull:
			err = fmt.Errorf("a line of more than %d bytes", maxLine)
		case err != nil && err != io.EOF:
			return err
		case !utf8.Valid(line):
			err = errors.New("not a text in UTF-8")
		default:
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte(byteOrderMark))
			}
			err = do(string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))))
		}
		if err != nil {
			return &formatError{file: s.name, line: number, cause: err}
		}
	}
}

// maxVocabulary is the largest number of words in a vocabulary. This limit
// keeps every word's ID within an int32.
const maxVocabulary = 1 << 31

// Vocabulary maps words to IDs. It is immutable and safe for concurrent use.
type Vocabulary struct {
	tokens  []string // the words, indexed by ID
	ids     map[string]int
	unknown int // ID of the placeholder for words outside the vocabulary
}

// ReadWords reads a vocabulary file for ReadCorpus. Each line has a word,
// optionally followed by its count. The words end and unknown get the IDs 0
// and 1, even if the file does not contain them. The other words follow by
// decreasing count, or in the file's order if it has no counts. The parameter
// most is the maximum size of the vocabulary; further words are left out. A
// word that occurs twice is an error.
func ReadWords(path string, most int, end, unknown string) (*Vocabulary, error) {
	return readFile(path, func(s *source) (*Vocabulary, error) { return decodeWords(s, most, end, unknown) })
}

func decodeWords(s *source, most int, end, unknown string) (*Vocabulary, error) {
	all, err := s.countedWords()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(b.count, a.count) })
	v := &Vocabulary{ids: map[string]int{end: 0, unknown: 1}, tokens: []string{end, unknown}, unknown: 1}
	if len(v.ids) < 2 || most < 2 {
		return nil, fmt.Errorf("%s: at most %d words: want %q and another unknown word at least", s.name, most, end)
	}
	for _, c := range all {
		if _, special := v.ids[c.word]; !special && v.Len() < min(most, maxVocabulary) {
			v.ids[c.word], v.tokens = v.Len(), append(v.tokens, c.word)
		}
	}
	return v, nil
}

// counted is a word of a vocabulary file with its count.
type counted struct {
	word  string
	count uint64
	given bool // true if the file has a count for this word
}

// countedWords returns the words of a vocabulary file in the file's order.
func (s *source) countedWords() (all []counted, err error) {
	lines := map[string]int{} // line number of each word's first occurrence
	err = s.lines(func(line string) error {
		c, err := parseCounted(line)
		if err != nil {
			return err
		}
		if all = append(all, c); c.given != all[0].given {
			return fmt.Errorf("%.80q: want a count on every line, or on none", line)
		}
		if first := lines[c.word]; first > 0 {
			return fmt.Errorf("token %.80q is on line %d already", c.word, first)
		}
		lines[c.word] = len(all)
		return nil
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

// Len is the number of words, including the placeholder for unknown words.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// ID returns the ID of a word. For a word outside the vocabulary, it returns
// the ID of the placeholder for unknown words.
func (v *Vocabulary) ID(token string) int {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return v.unknown
}

// Corpus is a text stored as word IDs of 4 bytes each. It is immutable and
// safe for concurrent use.
type Corpus struct {
	numbers []int32 // word IDs, in the order of the text
	unknown int     // number of words in the text that are not in the vocabulary
}

// ReadCorpus reads UTF-8 texts, in the order of paths. The files may be
// compressed with gzip. Each line is a sentence with spaces between its words,
// as in the One Billion Word Benchmark. After each sentence, ReadCorpus
// appends the word end, which the vocabulary must contain. Lines without words
// are skipped. A text in which no word is in the vocabulary is an error.
func ReadCorpus(v *Vocabulary, end string, paths ...string) (*Corpus, error) {
	last, ok := v.ids[end]
	if !ok {
		return nil, fmt.Errorf("read a text: the word %q, which ends sentences, is not in the vocabulary", end)
	}
	c, sentences := &Corpus{}, 0
	for line, err := range lines(paths...) {
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

// add appends the words of a line and returns the total number of words in the
// corpus.
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

// words returns the words of a line, which are separated by ASCII white space.
// A no-break space is part of a word.
func words(line string) iter.Seq[string] {
	return strings.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' })
}

// Len is the number of words, including one sentence end per sentence.
func (c *Corpus) Len() int { return len(c.numbers) }

// String returns the number of words and the percentage of words that are not
// in the vocabulary.
func (c *Corpus) String() string {
	return fmt.Sprintf("%d words, %.1f %% of them not in the vocabulary", c.Len(), 100*float64(c.unknown)/float64(c.Len()))
}

// Row returns a function that returns the next word of one row. It leaves out
// the row's first skip words. The parameter of is the number of rows; they
// begin at equal distances in the text. A row never ends: after the text's
// last word, it continues with the first.
func (c *Corpus) Row(row, of, skip int) (next func() int64) {
	at, _ := share(len(c.numbers), row, of)
	at = (at + skip) % len(c.numbers)
	return func() int64 {
		word := c.numbers[at]
		at = (at + 1) % len(c.numbers)
		return int64(word)
	}
}
