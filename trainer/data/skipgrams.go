package data

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/plx-run/plx/trainer/random"
)

// Text is a text stored as word numbers. Words are numbered by frequency: the
// most frequent is 0, and equally frequent words are in byte order. A Text is
// immutable and safe for concurrent use.
type Text struct {
	Words   []string // the distinct words, indexed by word number
	numbers []int32  // word numbers, in the order of the text
	counts  []int    // number of occurrences of each word, indexed by word number
	sum     uint32   // CRC-32C of all words of the input, rare ones included
}

// ReadText reads UTF-8 texts, in the order of paths, whose words are separated
// by white space. The files may be compressed with gzip. The parameter most is
// the maximum number of distinct words: ReadText keeps the most frequent words
// and drops all other words. The words before and after a dropped word become
// neighbors. Line ends count as spaces.
func ReadText(most int, paths ...string) (*Text, error) {
	if most < 2 {
		return nil, fmt.Errorf("read a text: at most %d words, want at least 2", most)
	}
	c := newCounter()
	for line, err := range lines(paths...) {
		if err != nil {
			return nil, err
		}
		for word := range words(line) {
			c.add(word)
		}
	}
	t := c.text(most)
	if len(t.Words) < 2 {
		return nil, fmt.Errorf("%s: %d different words, want at least 2", strings.Join(paths, ", "), len(t.Words))
	}
	return t, nil
}

// MakeTopics makes an artificial text of sentences, each about one of up to 20
// topics. Every topic has its own words: a0, a1, ... for the first, b0, b1,
// ... for the second. Words are drawn by Zipf's law. A sentence has 20 words.
// The parameter most is the number of distinct words; less than 4 counts as 4.
// The text has 40 times that number of words, but no more than a million. It
// depends only on seed and most.
func MakeTopics(seed uint64, most int) *Text {
	const sentence = 20
	most = max(most, 4)
	c, s, subjects := newCounter(), random.New(seed, "topics"), min(20, most/2)
	for i := range min(2*most, 50_000) {
		draw := s.Derive(uint64(i))
		_, u := draw.Pair(sentence)
		subject := min(int(u*float64(subjects)), subjects-1)
		for at := range uint64(sentence) {
			u, _ := draw.Pair(at)
			c.add(fmt.Sprintf("%c%d", 'a'+subject, random.Zipf(u, most/subjects)))
		}
	}
	return c.text(most)
}

// counter collects the words of a text and numbers them in the order of their
// first occurrence.
type counter struct {
	ids     map[string]int32
	words   []string
	counts  []int
	numbers []int32
	sum     uint32
}

func newCounter() *counter { return &counter{ids: map[string]int32{}} }

func (c *counter) add(word string) {
	id, known := c.ids[word]
	if !known {
		id = int32(len(c.words))
		word = strings.Clone(word) // a copy, because a substring would keep the whole line in memory
		c.ids[word], c.words, c.counts = id, append(c.words, word), append(c.counts, 0)
	}
	c.counts[id]++
	c.numbers = append(c.numbers, id)
	c.sum = crc32.Update(c.sum, castagnoli, append([]byte(word), 0))
}

// text returns the collected text, with words renumbered by frequency. It
// keeps the most frequent words, whose maximum number is the parameter most,
// and drops all others.
func (c *counter) text(most int) *Text {
	order := make([]int32, len(c.words))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(c.counts[b], c.counts[a]), strings.Compare(c.words[a], c.words[b]))
	})
	t, number := &Text{sum: c.sum}, make([]int32, len(order))
	for i, old := range order {
		number[old] = int32(i)
		if i < most {
			t.Words, t.counts = append(t.Words, c.words[old]), append(t.counts, c.counts[old])
		}
	}
	for _, old := range c.numbers {
		if n := number[old]; int(n) < most {
			t.numbers = append(t.numbers, n)
		}
	}
	return t
}

// Numbers returns the numbers of the words in a comma-separated list. For an
// empty list, it returns the numbers of the n most frequent words. A word that
// the text does not have is an error.
func (t *Text) Numbers(list string, n int) ([]int, error) {
	var all []int
	if list == "" {
		for i := range min(n, len(t.Words)) {
			all = append(all, i)
		}
		return all, nil
	}
	for word := range strings.SplitSeq(list, ",") {
		i := slices.Index(t.Words, word)
		if i < 0 {
			return nil, fmt.Errorf("%.80q is not among the %d words of the text", word, len(t.Words))
		}
		all = append(all, i)
	}
	return all, nil
}

// Neighbour is a word whose vector has a direction close to another word's
// vector.
type Neighbour struct {
	Word   string
	Cosine float64 // cosine of the angle between the word's vector and the other word's vector; 0 if one vector is zero
}

func (n Neighbour) String() string { return fmt.Sprintf("%s %.2f", n.Word, n.Cosine) }

// Neighbours is a list of neighbors, the nearest first.
type Neighbours []Neighbour

func (n Neighbours) String() string { return strings.Trim(fmt.Sprint([]Neighbour(n)), "[]") }

// Nearest returns the n words whose vectors have the largest cosine with the
// vector of the given word, the nearest first. It leaves out the word itself.
// vectors has one row per word of the text.
func (t *Text) Nearest(vectors []float32, word, n int) Neighbours {
	width, all := len(vectors)/len(t.Words), make(Neighbours, 0, len(t.Words))
	for i, other := range t.Words {
		if i != word {
			all = append(all, Neighbour{other, cosine(vectors[word*width:][:width], vectors[i*width:][:width])})
		}
	}
	slices.SortStableFunc(all, func(a, b Neighbour) int { return cmp.Compare(b.Cosine, a.Cosine) })
	return all[:min(max(n, 0), len(all))]
}

func cosine(x, y []float32) float64 {
	var xy, xx, yy float64
	for i, v := range x {
		a, b := float64(v), float64(y[i])
		xy, xx, yy = xy+a*b, xx+a*a, yy+b*b
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}

// SkipGram is a training sample of word2vec: a word with one of its neighbors
// in the text, and the same word with several random words (Mikolov et al.
// 2013, "Distributed representations of words and phrases and their
// compositionality"). Its three slices have the same length.
type SkipGram struct {
	Words  []int64   // the word, repeated once for each element of Others
	Others []int64   // the neighbor, then the random words
	Labels []float32 // 1 for the neighbor, 0 for each random word
}

// SkipGramBatch concatenates the slices of several skip-grams into a batch.
func SkipGramBatch(grams []SkipGram) (words, others []int64, labels []float32) {
	for _, g := range grams {
		words, others, labels = append(words, g.Words...), append(others, g.Others...), append(labels, g.Labels...)
	}
	return words, others, labels
}

// SkipGrams returns an endless dataset of skip-grams of the text. A neighbor
// is at most window words before or after the word; the text wraps around at
// its end. The parameter negatives is the number of random words in each
// skip-gram. The probability of a random word is proportional to its count to
// the power of 0.75. A random word never equals the neighbor. Skip-gram i
// depends only on the text, the arguments and i. Values of window or negatives
// below 1 count as 1.
func (t *Text) SkipGrams(seed uint64, window, negatives int) Dataset[SkipGram] {
	g := skipGrams{text: t, seed: seed, window: max(window, 1), negatives: max(negatives, 1)}
	total := 0.0
	for _, n := range t.counts {
		total += math.Pow(float64(n), 0.75)
		g.until = append(g.until, total)
	}
	return g
}

type skipGrams struct {
	text              *Text
	seed              uint64
	window, negatives int
	until             []float64 // cumulative sums of count^0.75, indexed by word number, by which random words are drawn
}

// Len returns the largest int, because the dataset is endless.
func (g skipGrams) Len() int { return math.MaxInt }

// Describe returns the number of words, and a checksum of the text.
func (g skipGrams) Describe() string {
	return fmt.Sprintf("skip-grams of %d words, %d of them different, checksum %08x", len(g.text.numbers), len(g.text.Words), g.text.sum)
}

// At draws a random position of the text, and the distance of the neighbor
// from it. The neighbor follows the word if i is even, and precedes it if i is
// odd.
func (g skipGrams) At(i int) (SkipGram, error) {
	if err := checkIndex(i, g.Len()); err != nil {
		return SkipGram{}, err
	}
	draw, all := random.New(g.seed, "skip-grams").Derive(uint64(i)), g.text.numbers
	u, v := draw.Pair(0)
	at := min(int(u*float64(len(all))), len(all)-1)
	word, other := int64(all[at]), int64(all[(at+1+min(int(v*float64(g.window)), g.window-1))%len(all)])
	if i%2 == 1 {
		word, other = other, word
	}
	s := SkipGram{Words: []int64{word}, Others: []int64{other}, Labels: []float32{1}}
	for try := uint64(1); len(s.Others) <= g.negatives; try++ {
		u, _ := draw.Pair(try)
		n := int64(g.drawn(u))
		if n != other {
			s.Words, s.Others, s.Labels = append(s.Words, word), append(s.Others, n), append(s.Labels, 0)
		}
	}
	return s, nil
}

// drawn maps u, a uniform random number in [0, 1), to a word number. It uses
// the cumulative sums in until.
func (g skipGrams) drawn(u float64) int {
	last := len(g.until) - 1
	return min(sort.Search(last, func(k int) bool { return g.until[k] > u*g.until[last] }), last)
}
