package data

import (
	"reflect"
	"testing"
)

func made(t *testing.T, digits bool, seed uint64, first, samples int) *Synthetic {
	t.Helper()
	maker := MakePictures
	if digits {
		maker = MakeDigits
	}
	m, err := maker(seed, first, samples)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An image must depend only on the seed and its number.
func TestMadeImages(t *testing.T) {
	for _, digits := range []bool{true, false} {
		all, part, other := made(t, digits, 7, 0, 100), made(t, digits, 7, 40, 20), made(t, digits, 8, 0, 100)
		size := all.form.channels * all.form.side * all.form.side
		same, counts := 0, make([]int, madeClasses)
		for i := 99; i >= 0; i-- {
			x, err := all.At(i)
			if err != nil || len(x.Pixels) != size {
				t.Fatalf("image %d: %d pixels, %v", i, len(x.Pixels), err)
			}
			counts[x.Label]++
			if y, _ := other.At(i); reflect.DeepEqual(x, y) {
				same++
			}
			if i < 40 || i >= 60 {
				continue
			}
			if y, err := part.At(i - 40); err != nil || !reflect.DeepEqual(x, y) {
				t.Fatalf("image %d differs in another range: %v", i, err)
			}
		}
		if same > 0 {
			t.Errorf("%d images do not depend on the seed", same)
		}
		for class, n := range counts {
			if n < 1 || n > 25 {
				t.Errorf("class %d has %d of 100 images", class, n)
			}
		}
	}
	if _, err := made(t, true, 1, 0, 5).At(5); err == nil {
		t.Error("image 5 of 5")
	}
	if _, err := MakeDigits(1, -1, 5); err == nil {
		t.Error("images before the first are made")
	}
}

// The images must never change, because published results refer to the seed.
func TestMadeImagesNeverChange(t *testing.T) {
	for digits, want := range map[bool]uint64{true: 0x322d70cac7304ab2, false: 0xee4e14677d67aff7} {
		sum, m := uint64(fnvOffset), made(t, digits, 1, 0, 50)
		for x, err := range each(m) {
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range append(x.Pixels, byte(x.Label)) {
				sum = (sum ^ uint64(p)) * fnvPrime
			}
		}
		if sum != want {
			t.Errorf("digits %v: sum %#x, want %#x", digits, sum, want)
		}
	}
}

const fnvOffset, fnvPrime = 0xcbf29ce484222325, 0x100000001b3
