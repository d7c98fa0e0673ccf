package data

import (
	"slices"
	"strings"
	"testing"
)

// The rows of all workers together are what Epochs and a Filler make of the
// whole batch.
func TestBatches(t *testing.T) {
	images, err := MakePictures(2, 0, 50)
	if err != nil {
		t.Fatal(err)
	}
	c := BatchesConfig{Pixels: 3 * 32 * 32, Classes: 10, Scale: Scale{[]float32{0, 0.5, 1}, []float32{1, 2, 3}}, Batch: 12, Seed: 3}
	b, err := NewBatches(images, c)
	if err != nil {
		t.Fatal(err)
	}
	epochs, _ := NewEpochs(EpochsConfig{Samples: 50, Batch: 12, Seed: 3})
	fill, _ := NewFiller(images, 10, c.Scale)
	for _, step := range []int{0, 3, 4, 17} {
		var x, y []float32
		for _, cut := range [][2]int{{0, 5}, {5, 5}, {5, 12}} {
			some, labels, err := b.Rows(step, cut[0], cut[1])
			if err != nil {
				t.Fatal(err)
			}
			x, y = append(x, some...), append(y, labels...)
		}
		wantX, wantY := make([]float32, 12*c.Pixels), make([]float32, 12*10)
		if err := fill.Fill(epochs.Rows(step, 0, 12, nil), wantX, wantY); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x, wantX) || !slices.Equal(y, wantY) {
			t.Errorf("step %d: another batch", step)
		}
	}
}

func TestFaultyBatches(t *testing.T) {
	images, err := MakeDigits(2, 0, 20)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]BatchesConfig{
		"20 samples fill no batch of 21": {Pixels: 28 * 28, Classes: 10, Batch: 21},
		"0 classes of images":            {Pixels: 28 * 28, Batch: 1},
		"the 784 pixels of sample":       {Pixels: 20 * 20, Classes: 10, Batch: 4},
		"want 0 to 1":                    {Pixels: 28 * 28, Classes: 2, Batch: 20},
	} {
		b, err := NewBatches(images, c)
		if err == nil {
			_, _, err = b.Rows(0, 0, c.Batch)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
