package data

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/random"
)

// Made is a dataset of artificial images, which are computed on demand. An
// image depends only on the seed and its number. It is the same on every
// machine, because only whole numbers are used.
//
// Each class has a few patterns. An image is one of them, with a pattern of no
// class laid over it, both moved by a few pixels and dimmed, with noise. After
// 40000 samples a linear model classified 93 % of unseen digits correctly, and
// one with a hidden layer of 100 units 96 %; of pictures 85 % and 86 %.
type Made struct {
	form     form
	samples  int // number of images
	first    int // number of the first image, counted from the seed's first
	stream   random.Stream
	patterns [][]uint8 // class after class; a pattern is larger than an image by shift on each side
	others   [][]uint8 // patterns of no class
}

// form is the form of artificial images.
type form struct {
	channels, side int // number of channels, and pixels of a side of an image
	cell           int // pixels of a side of a cell in the coarse grid from which a pattern is drawn
	background     int // brightness of a pattern's dark parts, of 255
	patterns       int // number of patterns of each class
	share          int // least weight of the class's pattern in an image, of 256
}

const (
	madeClasses = 10
	madeOthers  = 64 // patterns of no class
	shift       = 2  // pixels, at most, to each side
	noise       = 32 // of 255, at most, up or down
)

// MakeDigits makes images of MNIST's form: one channel of 28 x 28 pixels, 10
// classes. The dataset holds the samples first, first+1, ... of the seed.
// Training and test data are two ranges of them.
func MakeDigits(seed uint64, first, samples int) (*Made, error) {
	return newMade("digits", form{channels: 1, side: 28, cell: 4, patterns: 3, share: 144}, seed, first, samples)
}

// MakePictures makes images of CIFAR-10's form: three channels of 32 x 32
// pixels, 10 classes. See MakeDigits.
func MakePictures(seed uint64, first, samples int) (*Made, error) {
	return newMade("pictures", form{channels: 3, side: 32, cell: 8, background: 64, patterns: 8, share: 112}, seed, first, samples)
}

func newMade(name string, f form, seed uint64, first, samples int) (*Made, error) {
	if first < 0 || samples < 0 || first > maxSamples || samples > maxSamples {
		return nil, fmt.Errorf("make %s: samples %d to %d+%d, want 0 to %d", name, first, first, samples, int64(maxSamples))
	}
	m := &Made{form: f, samples: samples, first: first, stream: random.New(seed, "made "+name)}
	classes := madeClasses * f.patterns
	all := make([][]uint8, classes+madeOthers)
	patterns := random.New(seed, "patterns of "+name)
	for i := range all {
		all[i] = f.pattern(patterns.Derive(uint64(i)))
	}
	m.patterns, m.others = all[:classes], all[classes:]
	return m, nil
}

// Len is the number of images.
func (m *Made) Len() int { return m.samples }

// At computes image i in new memory.
func (m *Made) At(i int) (Image, error) {
	if err := checkIndex(i, m.samples); err != nil {
		return Image{}, err
	}
	s := m.stream.Derive(uint64(m.first + i))
	choice, place := s.Bits(0), s.Bits(1)
	which, other := below(choice[0], len(m.patterns)), below(choice[1], len(m.others))
	pixels := make([]uint8, m.form.channels*m.form.side*m.form.side)
	share := m.form.share + below(choice[2], 64) // of 256: weight of the pattern
	bright := 160 + below(choice[3], 96)
	m.form.add(pixels, m.patterns[which], place[0], place[1], share*bright>>8)
	m.form.add(pixels, m.others[other], place[2], place[3], (256-share)*bright>>8)
	addNoise(pixels, s)
	return Image{Pixels: pixels, Label: which / m.form.patterns}, nil
}

// below returns a number in [0, n) from a random word.
func below(word uint32, n int) int { return int(uint64(word) * uint64(n) >> 32) }

// pattern draws a coarse grid of cells and interpolates linearly between the
// corners of cells. Its side is longer than an image's by shift on both sides.
func (f form) pattern(s random.Stream) []uint8 {
	corners, wide := f.side/f.cell+3, f.side+2*shift
	p := make([]uint8, 0, f.channels*wide*wide)
	grid := make([]int, corners*corners)
	for c := range f.channels {
		for i := range grid {
			grid[i] = f.bright(s.Bits(uint64(c*len(grid) + i))[0])
		}
		for y := range wide {
			for x := range wide {
				p = append(p, f.smooth(grid, corners, x, y))
			}
		}
	}
	return p
}

// smooth returns the value at (x, y) between the four corners around it.
func (f form) smooth(grid []int, corners, x, y int) uint8 {
	at, dx, dy := y/f.cell*corners+x/f.cell, x%f.cell, y%f.cell
	above := grid[at]*(f.cell-dx) + grid[at+1]*dx
	below := grid[at+corners]*(f.cell-dx) + grid[at+corners+1]*dx
	return uint8((above*(f.cell-dy) + below*dy) / (f.cell * f.cell))
}

// bright returns the value of a corner: two of five are bright.
func (f form) bright(word uint32) int {
	if word%5 < 2 {
		return 255
	}
	return f.background
}

// add adds a pattern, moved at random and scaled by parts/256, to an image.
func (f form) add(pixels, pattern []uint8, moveX, moveY uint32, parts int) {
	wide := f.side + 2*shift
	dx, dy := below(moveX, 2*shift+1), below(moveY, 2*shift+1)
	for c := range f.channels {
		for y := range f.side {
			from := pattern[(c*wide+y+dy)*wide+dx:][:f.side]
			to := pixels[(c*f.side+y)*f.side:][:f.side]
			for x := range to {
				to[x] += uint8(int(from[x]) * parts >> 8)
			}
		}
	}
}

// addNoise adds a number from -noise to noise to each pixel. Four words of the
// stream serve 16 pixels; the two before them chose the image.
func addNoise(pixels []uint8, s random.Stream) {
	for i := 0; i+16 <= len(pixels); i += 16 {
		words := s.Bits(uint64(i/16) + 2)
		for j, word := range words {
			for k := range 4 {
				p := &pixels[i+4*j+k]
				*p = uint8(min(255, max(0, int(*p)+int(word&0xff)*(2*noise+1)>>8-noise)))
				word >>= 8
			}
		}
	}
}

// MadeText is an endless artificial text. On average, every second word is the
// one that always follows the word before it. The other words are drawn by
// Zipf's law: words are numbered by how often they are drawn. The text depends
// only on the seed.
type MadeText struct {
	seed  uint64
	words int // number of different words
}

// MakeText makes a text of a number of different words, at least one.
func MakeText(seed uint64, words int) MadeText { return MadeText{seed, max(1, words)} }

// Row begins to read the text at one of many places, after its first skip
// words. Rows share only the rule.
func (m MadeText) Row(row, skip int) (next func() int64) {
	s, at, word := random.New(m.seed, "text").Derive(uint64(row)), skip, int64(0)
	for ; at > 0; at-- { // go back to a word that was drawn
		if rule, _ := s.Pair(uint64(at)); rule >= 0.5 {
			break
		}
	}
	next = func() int64 {
		rule, u := s.Pair(uint64(at))
		if at++; rule < 0.5 {
			word = m.following(word)
		} else {
			word = int64(random.Zipf(u, m.words))
		}
		return word
	}
	for at < skip {
		next()
	}
	return next
}

func (m MadeText) following(word int64) int64 {
	u, _ := random.New(m.seed, "following").Pair(uint64(word))
	return int64(random.Zipf(u, m.words))
}

// Perplexity is the least perplexity that a model of the text can reach. It is
// the exponential of the mean entropy of the next word, over all words as often
// as they occur.
func (m MadeText) Perplexity() float64 {
	chance, following := make([]float64, m.words), make([]int64, m.words)
	drawn := 0.0 // sum of the surprises of words that are only drawn
	for k := range chance {
		chance[k], following[k] = random.ZipfChance(k, m.words), m.following(int64(k))
		drawn += surprise(chance[k] / 2)
	}
	mean := 0.0
	for word, p := range m.often(chance, following) {
		q := chance[following[word]] / 2
		mean += p * (drawn - surprise(q) + surprise(q+0.5))
	}
	return math.Exp(mean)
}

// String describes the number of words, and the perplexity if it is quick to
// compute.
func (m MadeText) String() string {
	about := fmt.Sprintf("made of %d words", m.words)
	if m.words <= 1<<20 {
		about += fmt.Sprintf(", with a perplexity of %.2f at best", m.Perplexity())
	}
	return about
}

// often computes how often each word occurs. A drawn word does not depend on
// the words before it, so the error of the first guess halves in each round.
func (m MadeText) often(chance []float64, following []int64) []float64 {
	often, next := append([]float64{}, chance...), make([]float64, m.words)
	for range 60 {
		for k, p := range chance {
			next[k] = p / 2
		}
		for word, p := range often {
			next[following[word]] += p / 2
		}
		often, next = next, often
	}
	return often
}

func surprise(p float64) float64 { return -p * math.Log(p) }
