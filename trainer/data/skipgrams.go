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

// Text is a text as the numbers of its words, the most frequent of which is number 0;
// of equally frequent words the first by bytes comes first. It does not change; any
// goroutine may use it.
type Text struct {
	Words   []string // by number
	numbers []int32  // in the order of the text
	counts  []int    // by number
	sum     uint32   // checksum of what it was made of
}

// ReadText reads texts in UTF-8, packed with gzip or not, one after the other, with
// blanks between their words. It keeps the most frequent words, at most as many as
// given, and leaves out all others, so that their neighbours stand side by side. Ends
// of lines are blanks.
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

// MakeTopics makes a text of sentences about one of up to 20 subjects each. Every
// subject has its own words: those of the first are called a0, a1, ..., those of the
// second b0, b1, ... They are drawn by Zipf's law. A sentence has 20 words, the text 40
// for each word that it may have, and a million at most. It depends only on the seed.
// Fewer than 4 words count as 4.
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

// counter collects a text's words, numbered as they come.
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
		word = strings.Clone(word) // its line is not kept
		c.ids[word], c.words, c.counts = id, append(c.words, word), append(c.counts, 0)
	}
	c.counts[id]++
	c.numbers = append(c.numbers, id)
	c.sum = crc32.Update(c.sum, castagnoli, append([]byte(word), 0))
}

// text numbers the words anew and leaves out the least frequent ones.
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

// Numbers returns the numbers of words that commas separate, or those of the n most
// frequent words if there are none. It refuses a word that the text does not have.
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

// Neighbour is a word whose vector points the way of another's.
type Neighbour struct {
	Word   string
	Cosine float64 // of the angle between both; 0 if one of them has only zeros
}

func (n Neighbour) String() string { return fmt.Sprintf("%s %.2f", n.Word, n.Cosine) }

// Neighbours are some words, the nearest first.
type Neighbours []Neighbour

func (n Neighbours) String() string { return strings.Trim(fmt.Sprint([]Neighbour(n)), "[]") }

// Nearest returns the n words whose vectors point most nearly the way of a word's vector,
// the nearest first, without the word itself. vectors has a row for each word.
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

// SkipGram is a word, a neighbour of it, and words that are drawn from the whole text
// (Mikolov et al. 2013, "Distributed representations of words and phrases and their
// compositionality"). The three slices are equally long.
type SkipGram struct {
	Words  []int64   // the word, again and again
	Others []int64   // its neighbour, then the drawn words
	Labels []float32 // 1 for the neighbour, 0 for the drawn words
}

// SkipGramBatch joins skip-grams, one after the other.
func SkipGramBatch(grams []SkipGram) (words, others []int64, labels []float32) {
	for _, g := range grams {
		words, others, labels = append(words, g.Words...), append(others, g.Others...), append(labels, g.Labels...)
	}
	return words, others, labels
}

// SkipGrams returns an endless dataset of a text's skip-grams. A word's neighbour stands
// at most window words before or behind it; the text's first word follows its last. A
// word is drawn as often as its count to the power of 0.75 says; the neighbour itself
// is not. Skip-gram i depends only on the text, the seed and i. A window of less than
// one word counts as one, and so does a number of negatives.
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
	until             []float64 // by word: the sum of how often it and those before it are drawn
}

// Len is more than any training reads.
func (g skipGrams) Len() int { return math.MaxInt }

// Describe has a checksum of the text.
func (g skipGrams) Describe() string {
	return fmt.Sprintf("skip-grams of %d words, %d of them different, checksum %08x", len(g.text.numbers), len(g.text.Words), g.text.sum)
}

// At draws a place and a distance. Every second skip-gram looks back.
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

// drawn is the word that u, a number in [0, 1), draws.
func (g skipGrams) drawn(u float64) int {
	last := len(g.until) - 1
	return min(sort.Search(last, func(k int) bool { return g.until[k] > u*g.until[last] }), last)
}
