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

// byteOrderMark begins some texts in UTF-8. It is not part of the first line.
const byteOrderMark = "\ufeff"

var errStopped = errors.New("the caller wants no more lines")

// lines returns the lines of texts in UTF-8, packed with gzip or not, one file
// after the other, without line ends. Each range over it opens the files again
// and holds one line in memory. A line of more than 1 MiB is an error: the file
// is probably not a text.
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

// lines passes every line of a text to do, without its end. An error of do
// names the line.
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

// maxVocabulary bounds the tokens of a vocabulary: ids fit into an int32.
const maxVocabulary = 1 << 31

// Vocabulary numbers tokens. It does not change; any goroutine may use it.
type Vocabulary struct {
	tokens  []string // by id
	ids     map[string]int
	unknown int // id of the word that stands for all words outside the vocabulary
}

// ReadWords reads a vocabulary for ReadCorpus: a word on each line, alone or
// followed by its count. The words end and unknown get the ids 0 and 1, even if
// the file does not have them. The other words follow, the most frequent first:
// by their counts, or in the file's order if it has no counts. Words beyond
// most are left out. A word that occurs twice is an error.
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

// counted is a word of a vocabulary file.
type counted struct {
	word  string
	count uint64
	given bool // the file gives the count
}

// countedWords reads the words of a vocabulary file in their order.
func (s *source) countedWords() (all []counted, err error) {
	lines := map[string]int{} // by word
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

// Len is the number of words, the unknown one included.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// ID returns a word's number, or the number of the unknown word.
func (v *Vocabulary) ID(token string) int {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return v.unknown
}

// Corpus is a text as the numbers of its words, 4 bytes each. It does not
// change; any goroutine may use it.
type Corpus struct {
	numbers []int32 // ids of the words, in the order of the text
	unknown int     // number of words that are not in the vocabulary
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

// String describes both numbers.
func (c *Corpus) String() string {
	return fmt.Sprintf("%d words, %.1f %% of them not in the vocabulary", c.Len(), 100*float64(c.unknown)/float64(c.Len()))
}

// Row begins to read one of `of` rows after its first skip words. The rows
// begin at equal distances. A row has no end: the text's first word
// follows its last.
func (c *Corpus) Row(row, of, skip int) (next func() int64) {
	at, _ := share(len(c.numbers), row, of)
	at = (at + skip) % len(c.numbers)
	return func() int64 {
		word := c.numbers[at]
		at = (at + 1) % len(c.numbers)
		return int64(word)
	}
}
