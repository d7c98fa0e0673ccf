package main

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/random"
)

// read opens the pictures that the flags name, or generates artificial
// pictures. It also returns a network for the pictures' size and number of
// classes.
func (s *settings) read(seed uint64, skipped *data.Skipped) (pictures data.Dataset[data.Image], net network, err error) {
	net = newNetwork(s.dropout)
	switch {
	case s.folder != "":
		folder, err := data.OpenFolder(skipped, s.folder)
		if err != nil {
			return nil, net, fmt.Errorf("--folder: %w", err)
		}
		if folder.Height != folder.Width || folder.Height%4 != 0 {
			return nil, net, fmt.Errorf("--folder %s: images of %d x %d pixels, want a square whose side is a multiple of 4", s.folder, folder.Width, folder.Height)
		}
		net.side, net.classes = folder.Height, len(folder.Classes)
		return data.SkipCorrupt[data.Image](folder, skipped), net, nil
	case s.records != "":
		files, err := data.Files(s.records)
		if err != nil {
			return nil, net, fmt.Errorf("--records: %w", err)
		}
		records, err := data.OpenRecords(skipped, files...)
		if err != nil {
			return nil, net, fmt.Errorf("--records: %w", err)
		}
		return data.SkipCorrupt(data.Map(records, picture), skipped), net, nil
	case s.files != "":
		pictures, err = data.ReadCIFAR10(strings.Split(s.files, ",")...)
	default:
		pictures, err = data.MakePictures(seed, 0, s.samples)
	}
	return pictures, net, err
}

// epochs returns an endless dataset that repeats the pictures in a new random
// order in each epoch. With --augment it also crops and mirrors them at
// random.
func (s *settings) epochs(pictures data.Dataset[data.Image], side int, seed uint64) (data.Dataset[data.Image], error) {
	if !s.augment {
		return data.Epochs(pictures, s.batch, seed)
	}
	crop := data.Crop{Pad: 4, Size: side}
	return data.Augment(pictures, s.batch, seed, func(x data.Image, r random.Stream) (data.Image, error) {
		return crop.Random(data.Picture{Image: x, Height: side, Width: side}, r)
	})
}

// picture decodes a record: a tf.train.Example with an encoded image and its
// class (from 0), under the feature names of TensorFlow's image datasets.
func picture(r data.Record) (data.Image, error) {
	e, err := data.ParseExample(r.Data)
	if err != nil {
		return data.Image{}, r.Wrong(err)
	}
	encoded, err := e.OneBytes("image/encoded")
	if err != nil {
		return data.Image{}, r.Wrong(err)
	}
	label, err := e.Int("image/class/label")
	if err == nil && (label < 0 || label >= cifarClasses) {
		err = fmt.Errorf("class %d, want 0 to %d", label, cifarClasses-1)
	}
	if err != nil {
		return data.Image{}, r.Wrong(err)
	}
	pixels, err := data.DecodeImage(encoded, cifarSide, cifarSide)
	return data.Image{Pixels: pixels, Label: int(label)}, r.Wrong(err)
}
