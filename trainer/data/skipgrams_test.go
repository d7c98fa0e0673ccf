package data

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func textOf(t *testing.T, most int, content string) *Text {
	t.Helper()
	text, err := ReadText(most, file(t, "text", []byte(content)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ReadText must keep the most frequent words; equally frequent words are in
// byte order.
func TestReadText(t *testing.T) {
	text := textOf(t, 3, "\ufeffb a\tc\n a d\r\n\n b a\u00a0a ü ü ü\n")
	if want := []string{"ü", "a", "b"}; !slices.Equal(text.Words, want) || !slices.Equal(text.counts, []int{3, 2, 2}) {
		t.Errorf("%q, %v times, want %q", text.Words, text.counts, want)
	}
	if want := []int32{2, 1, 1, 2, 0, 0, 0}; !slices.Equal(text.numbers, want) {
		t.Errorf("the text is %v, want %v", text.numbers, want)
	}
	if all, err := text.Numbers("b,ü", 9); err != nil || !slices.Equal(all, []int{2, 0}) {
		t.Errorf("b,ü are %v, %v", all, err)
	}
	if all, err := text.Numbers("", 9); err != nil || !slices.Equal(all, []int{0, 1, 2}) {
		t.Errorf("the most frequent are %v, %v", all, err)
	}
	if _, err := text.Numbers("a,c", 1); err == nil || err.Error() != `"c" is not among the 3 words of the text` {
		t.Errorf("a left out word: %v", err)
	}
}

func TestReadTextErrors(t *testing.T) {
	for content, want := range map[string]string{
		"":         "0 different words, want at least 2",
		"a a\na":   "1 different words, want at least 2",
		"a\nb\xff": "not a text in UTF-8",
	} {
		path := file(t, "text", []byte(content))
		if _, err := ReadText(9, path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if _, err := ReadText(1, file(t, "text", []byte("a b"))); err == nil || !strings.Contains(err.Error(), "at most 1 words") {
		t.Errorf("at most one word: %v", err)
	}
	if _, err := ReadText(9, "missing"); err == nil {
		t.Error("a missing file is read")
	}
}

// Describe must return different texts for different inputs, so that hosts can
// detect that their files differ.
func TestSkipGramsDescriptionHasTheTextsChecksum(t *testing.T) {
	describe := func(content string) string {
		return Describe(textOf(t, 9, content).SkipGrams(1, 2, 3))
	}
	a := describe("a b c")
	if !strings.HasPrefix(a, "skip-grams of 3 words, 3 of them different, checksum ") || a != describe("a b\nc") {
		t.Errorf("described as %q, with another end of line as %q", a, describe("a b\nc"))
	}
	if a == describe("a c b") || a == describe("ab c d") {
		t.Errorf("other texts are %q, too", a)
	}
}

// Neighbors must be within the window on both sides of the word, at each
// distance equally often. Random words must have the frequencies that follow
// from their counts, and never equal the neighbor.
func TestSkipGrams(t *testing.T) {
	const window, negatives, grams = 3, 4, 20000
	counts := []int{8, 4, 2, 1}
	text := &Text{Words: []string{"a", "b", "c", "d"}, counts: counts}
	for i := range 1000 { // each word contains its position
		text.Words, text.counts = append(text.Words, string(rune('0'+i))), append(text.counts, 0)
		text.numbers = append(text.numbers, int32(4+i))
	}
	d := text.SkipGrams(7, window, negatives)
	distances, drawn := map[int]int{}, make([]float64, 4)
	for i := range grams {
		s, err := d.At(i)
		if err != nil || len(s.Words) != 1+negatives || len(s.Others) != 1+negatives || !slices.Equal(s.Labels, []float32{1, 0, 0, 0, 0}) {
			t.Fatalf("%+v, %v", s, err)
		}
		if slices.ContainsFunc(s.Words, func(w int64) bool { return w != s.Words[0] }) {
			t.Fatalf("several words: %+v", s)
		}
		distances[(int(s.Others[0]-s.Words[0])+1500)%1000-500]++
		for _, n := range s.Others[1:] {
			drawn[n]++ // panics if a word without a count is drawn
		}
	}
	if len(distances) != 2*window {
		t.Fatalf("distances %v", distances)
	}
	for at, n := range distances {
		evenly(t, "distance", at, float64(n), grams, 1./(2*window))
	}
	total := 0.0
	for _, n := range counts {
		total += math.Pow(float64(n), 0.75)
	}
	for k, n := range counts {
		evenly(t, "word", k, drawn[k], grams*negatives, math.Pow(float64(n), 0.75)/total)
	}
}

// evenly checks that a count is within six standard deviations of its binomial
// distribution.
func evenly(t *testing.T, what string, i int, n, of, p float64) {
	t.Helper()
	if math.Abs(n-of*p) > 6*math.Sqrt(of*p*(1-p)) {
		t.Errorf("%s %d came %v times of %v, want about %.0f", what, i, n, of, of*p)
	}
}

// No random word may equal the neighbor. Skip-gram i must depend only on the
// seed and i.
func TestSkipGramsAreRepeatable(t *testing.T) {
	text := textOf(t, 9, "a b a b a c")
	d, again, other := text.SkipGrams(1, 1, 2), text.SkipGrams(1, 1, 2), text.SkipGrams(2, 1, 2)
	var differ int
	for i := 99; i >= 0; i-- {
		x, _ := d.At(99 - i)
		d.At(i)
		y, _ := again.At(99 - i)
		z, _ := other.At(99 - i)
		if !slices.Equal(x.Others, y.Others) || x.Words[0] != y.Words[0] {
			t.Fatalf("skip-gram %d is %v or %v", 99-i, x, y)
		}
		if !slices.Equal(x.Others, z.Others) {
			differ++
		}
		if slices.Contains(x.Others[1:], x.Others[0]) {
			t.Fatalf("the neighbour is drawn: %v", x)
		}
	}
	if differ == 0 {
		t.Error("two seeds give the same skip-grams")
	}
	if _, err := d.At(-1); err == nil {
		t.Error("skip-gram -1 exists")
	}
	x, _ := d.At(0)
	y, _ := d.At(1)
	words, others, labels := SkipGramBatch([]SkipGram{x, y})
	if !slices.Equal(words, append(slices.Clone(x.Words), y.Words...)) || !slices.Equal(others, append(slices.Clone(x.Others), y.Others...)) ||
		!slices.Equal(labels, []float32{1, 0, 0, 1, 0, 0}) {
		t.Errorf("joined: %v, %v, %v", words, others, labels)
	}
}

// Each sentence must have words of one topic. Topics must be equally frequent,
// and the words of each must follow Zipf's law.
func TestMakeTopics(t *testing.T) {
	const words = 200
	text := MakeTopics(3, words)
	subjects := map[byte]float64{}
	for i := 0; i < len(text.numbers); i += 20 {
		first := text.Words[text.numbers[i]][0]
		subjects[first]++
		for _, n := range text.numbers[i : i+20] {
			if text.Words[n][0] != first {
				t.Fatalf("sentence %d has %q and %q", i/20, first, text.Words[n])
			}
		}
	}
	if len(text.numbers) != 40*words || len(text.Words) > words || len(subjects) != 20 {
		t.Fatalf("%d words, %d different, of %d subjects", len(text.numbers), len(text.Words), len(subjects))
	}
	for s, n := range subjects {
		evenly(t, "subject", int(s), n, 2*words, 1./20)
	}
	most := 0.0
	for i, name := range text.Words {
		if name[1:] == "0" {
			most += float64(text.counts[i])
		}
	}
	evenly(t, "most frequent words", 0, most, 40*words, math.Log(2)/math.Log(11))
	if again := MakeTopics(3, words); again.sum != text.sum || MakeTopics(4, words).sum == text.sum {
		t.Error("the text does not follow from the seed")
	}
	if small := MakeTopics(0, 0); len(small.Words) != 4 {
		t.Errorf("the smallest text has %q", small.Words)
	}
}

func TestNearest(t *testing.T) {
	text := &Text{Words: []string{"a", "b", "c", "d", "e"}}
	vectors := []float32{1, 0 /**/, -3, 0 /**/, 2, 2 /**/, 0, 0 /**/, 5, 1}
	if got := text.Nearest(vectors, 0, 9).String(); got != "e 0.98 c 0.71 d 0.00 b -1.00" {
		t.Errorf("near a are %s", got)
	}
	if got := text.Nearest(vectors, 1, 2).String(); got != "d 0.00 c -0.71" {
		t.Errorf("near b are %s", got)
	}
	if got := text.Nearest(vectors, 0, -1); len(got) != 0 {
		t.Errorf("no words are %v", got)
	}
}
