package data

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

// noisy returns a picture of random pixels in two channels.
func noisy(height, width int) Picture {
	r := rand.New(rand.NewPCG(uint64(height), uint64(width)))
	p := Picture{Height: height, Width: width, Image: Image{Label: 3}}
	for range 2 * height * width {
		p.Pixels = append(p.Pixels, uint8(r.UintN(256)))
	}
	return p
}

// triangle computes pixel i of a resized axis directly by the formula of the
// triangle filter.
func triangle(at func(i int) float64, from, to, i int) float64 {
	scale := float64(from) / float64(to)
	sum, weight := 0.0, 0.0
	for k := range from {
		w := max(0, 1-math.Abs((float64(k)+0.5)-(float64(i)+0.5)*scale)/max(scale, 1))
		sum, weight = sum+w*at(k), weight+w
	}
	return math.Round(sum / weight)
}

func TestResize(t *testing.T) {
	for _, c := range []struct{ height, width, shorter, newHeight, newWidth int }{
		{8, 8, 4, 4, 4}, {9, 13, 5, 5, 7}, {13, 9, 5, 7, 5}, {3, 4, 7, 7, 9}, {1, 1, 5, 5, 5}, {6, 40, 1, 1, 6}, {5, 6, 5, 5, 6},
	} {
		p := noisy(c.height, c.width)
		got, err := p.resize(c.shorter)
		if err != nil || got.Height != c.newHeight || got.Width != c.newWidth || got.Label != 3 || len(got.Pixels) != 2*c.newHeight*c.newWidth {
			t.Fatalf("%+v: %d x %d, %d pixels, %v", c, got.Height, got.Width, len(got.Pixels), err)
		}
		for channel := range 2 {
			x := func(i, k int) float64 { return float64(p.Pixels[channel*p.plane()+i*p.Width+k]) }
			for i := range c.newHeight {
				for k := range c.newWidth {
					want := triangle(func(row int) float64 {
						return triangle(func(column int) float64 { return x(row, column) }, c.width, c.newWidth, k)
					}, c.height, c.newHeight, i)
					if v := float64(got.Pixels[channel*got.plane()+i*got.Width+k]); math.Abs(v-want) > 1 {
						t.Errorf("%+v: (%d, %d) is %v, want %v", c, i, k, v, want)
					}
				}
			}
		}
	}
	white := Picture{Image: Image{Pixels: slices.Repeat([]uint8{255}, 70)}, Height: 7, Width: 10}
	for _, shorter := range []int{1, 3, 6, 20} {
		if p, err := white.resize(shorter); err != nil || slices.Min(p.Pixels) != 255 {
			t.Errorf("white of %d is %v, %v", shorter, p.Pixels, err)
		}
	}
	if _, err := (Picture{Height: 1, Width: 1 << 24}).resize(256); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a picture that grows too large: %v", err)
	}
}

func TestCenterCrop(t *testing.T) {
	p := Picture{Height: 3, Width: 5, Image: Image{Label: 2, Pixels: make([]uint8, 30)}}
	for i := range p.Pixels {
		p.Pixels[i] = uint8(i)
	}
	got, err := Crop{Size: 3}.Center(p)
	if err != nil || got.Label != 2 || !slices.Equal(got.Pixels, []uint8{1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18, 21, 22, 23, 26, 27, 28}) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = Crop{Pad: 1, Size: 5}.Center(Picture{Height: 3, Width: 3, Image: Image{Pixels: []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9}}})
	if err != nil || !slices.Equal(got.Pixels, []uint8{0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 7, 8, 9, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("padded %v, %v", got, err)
	}
	for want, c := range map[string]struct {
		crop Crop
		p    Picture
	}{
		"less than the 4 x 4 of the crop":  {Crop{Size: 4}, p},
		"want at least 0, 0 and 1":         {Crop{}, p},
		"{Resize:-1 ":                      {Crop{Resize: -1, Size: 1}, p},
		"are no whole number of channels":  {Crop{Size: 1}, Picture{Height: 2, Width: 2, Image: Image{Pixels: make([]uint8, 6)}}},
		"no whole number of channels of 0": {Crop{Size: 1}, Picture{}},
	} {
		if _, err := c.crop.Center(c.p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := c.crop.Random(c.p, random.Stream{}); err == nil {
			t.Errorf("at random: no error, want %q", want)
		}
	}
}

// A random crop must have every position, and be mirrored or not, about
// equally often.
func TestRandomCrop(t *testing.T) {
	p := Picture{Height: 3, Width: 4, Image: Image{Pixels: []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}}
	met := map[string]int{}
	const draws = 1200
	for i := range uint64(draws) {
		x, err := Crop{Size: 2}.Random(p, random.New(1, "test").Derive(i))
		if err != nil {
			t.Fatal(err)
		}
		met[fmt.Sprint(x.Pixels)]++
	}
	for top := range 2 {
		for left := range 3 {
			a := top*4 + left
			for _, want := range [][]int{{a, a + 1, a + 4, a + 5}, {a + 1, a, a + 5, a + 4}} {
				if n := met[fmt.Sprint(want)]; n < draws/12/2 || n > draws/12*2 {
					t.Errorf("%v comes %d times of %d", want, n, draws)
				}
			}
		}
	}
	if len(met) != 12 {
		t.Errorf("%d different crops, want 12", len(met))
	}
}

// The augmented sample must depend only on the seed, the epoch and the sample,
// not on the batch size or the order of reading.
func TestAugment(t *testing.T) {
	const samples = 7
	seen := map[[3]uint64][]uint32{} // by seed, epoch, sample
	distinct := map[uint32]bool{}
	for _, batch := range []int{1, 2, 3, 7} {
		for seed := range uint64(2) {
			d, err := Augment(count(samples), batch, seed, func(x int, s random.Stream) ([2]uint32, error) {
				return [2]uint32{uint32(x), s.Bits(0)[0]}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			plain := mustEpochs(t, samples, batch, seed)
			whole := samples / batch * batch
			for i := 3*whole - 1; i >= 0; i-- {
				x, want := some(t, d, i, i+1)[0], some(t, plain, i, i+1)[0]
				if int(x[0]) != want {
					t.Errorf("sample %d is %d, without changes %d", i, x[0], want)
				}
				at := [3]uint64{seed, uint64(i / whole), uint64(want)}
				seen[at] = append(seen[at], x[1])
				distinct[x[1]] = true
			}
		}
	}
	for at, numbers := range seen {
		if len(slices.Compact(numbers)) != 1 {
			t.Errorf("seed, epoch, sample %v: %v", at, numbers)
		}
	}
	if len(distinct) != len(seen) {
		t.Errorf("%d different numbers for %d", len(distinct), len(seen))
	}
	d, err := Augment(count(2), 2, 1, func(int, random.Stream) (int, error) { return 0, errDisk })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.At(0); !errors.Is(err, errDisk) {
		t.Errorf("%v", err)
	}
	if _, err := d.At(-1); err == nil || errors.Is(err, errDisk) {
		t.Errorf("sample -1: %v", err)
	}
	if _, err := Augment(count(2), 3, 1, func(int, random.Stream) (int, error) { return 0, nil }); err == nil {
		t.Error("a batch of 3 of 2 samples")
	}
}

// A folder of pictures of several sizes, in which one file is not a picture.
func TestOpenPictures(t *testing.T) {
	files := map[string][]byte{
		"dog/2.PNG": encoded(t, dots(4, 2, 9)), "cat/x.png": encoded(t, dots(3, 5, 5)), "cat/.DS_Store": []byte("x"), "dog/3.png": []byte("none"),
	}
	root := folderOf(t, files)
	d, err := OpenPictures(root)
	if err != nil || d.Len() != 3 || !slices.Equal(d.Classes, []string{"cat", "dog"}) {
		t.Fatalf("%+v, %v", d, err)
	}
	for i, want := range []Picture{
		{Image{pixelsOf(3, 5, 5), 0}, 5, 3}, {Image{pixelsOf(4, 2, 9), 1}, 2, 4},
	} {
		if p, err := d.At(i); err != nil || fmt.Sprint(p) != fmt.Sprint(want) {
			t.Errorf("%v, want %v: %v", p, want, err)
		}
	}
	if _, err := d.At(2); err == nil || !strings.HasPrefix(err.Error(), root+"/dog/3.png: byte 0: neither a PNG nor a JPEG image") {
		t.Errorf("%v", err)
	}
	if _, err := d.At(3); err == nil {
		t.Error("picture 3 of 3")
	}
	s := NewSkipped(func(error) {})
	if p, err := SkipCorrupt(d, s).At(2); err != nil || p.Width != 3 || s.Count() != 1 {
		t.Errorf("%v, %v", p, err)
	}
	files["dog/2.PNG"] = encoded(t, dots(8, 9, 9))
	if other, err := OpenPictures(folderOf(t, files)); err != nil || other.Describe() == d.Describe() {
		t.Errorf("%v has the description of %v, %v", other, d, err)
	}
	_, err = OpenPictures(folderOf(t, map[string][]byte{"cat/.keep": nil}))
	var hinted interface{ Hint() string }
	if err == nil || !strings.Contains(err.Error(), "cat: the folder of a class has no image") || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "remove it") {
		t.Errorf("%v", err)
	}
}

func TestDecodePicture(t *testing.T) {
	clear := image.NewNRGBA(image.Rect(0, 0, 3, 1))
	clear.SetNRGBA(1, 0, color.NRGBA{200, 100, 50, 255})
	p, err := DecodePicture(encoded(t, clear))
	if want := []uint8{0, 200, 0, 0, 100, 0, 0, 50, 0}; err != nil || p.Height != 1 || p.Width != 3 || !slices.Equal(p.Pixels, want) {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := DecodePicture(claimed(60000, 60000)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
	if _, err := DecodeImage(encoded(t, clear), 0, 3); err == nil {
		t.Error("an image without rows")
	}
}
