package imagenet

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/plx-run/plx/trainer/data"
)

// source holds the datasets that the flags select.
type source struct {
	train, test data.Dataset[data.Picture] // training and validation pictures; test is nil without --validation
	classes     int
}

// crop returns the resizing and cropping that turn a picture into an input
// image of the network.
func (s *settings) crop() data.Crop { return data.Crop{Resize: s.size * 8 / 7, Size: s.size} }

// open opens the training pictures and, with --validation, the validation
// pictures.
func (s *settings) open(seed uint64, skipped *data.Skipped) (from source, err error) {
	if s.synthetic {
		return s.synthesize(seed)
	}
	train, names, err := s.pictures(s.data, skipped)
	if err != nil {
		return from, fmt.Errorf("--data: %w", err)
	}
	from = source{train: train, classes: s.classCount(names)}
	if err := s.fitting(s.data, names); err != nil || s.validation == "" {
		return from, err
	}
	test, others, err := s.pictures(s.validation, skipped)
	if err == nil && names != nil && others != nil && !slices.Equal(names, others) {
		err = fmt.Errorf("%s has %d classes, %s has %d, and a label is the place of a class among all: give both folders the same classes", s.validation, len(others), s.data, len(names))
	}
	if err != nil {
		return from, fmt.Errorf("--validation: %w", err)
	}
	from.test = test
	return from, nil
}

// openTest opens the pictures on which a checkpoint is evaluated. It also
// returns the number of classes.
func (s *settings) openTest(seed uint64, skipped *data.Skipped) (data.Dataset[data.Picture], int, error) {
	if s.synthetic {
		from, err := s.synthesize(seed)
		return from.test, from.classes, err
	}
	test, names, err := s.pictures(s.validation, skipped)
	if err != nil {
		return nil, 0, fmt.Errorf("--validation: %w", err)
	}
	return test, s.classCount(names), s.fitting(s.validation, names)
}

// fitting returns an error if --classes differs from the number of classes in
// folder. names lists the folder's classes; it is nil for TFRecord files,
// whose classes are unknown.
func (s *settings) fitting(folder string, names []string) error {
	if names != nil && s.classes > 0 && s.classes != len(names) {
		return fmt.Errorf("--classes is %d: %s has folders for %d classes: leave out the flag, or name the folder that holds the classes", s.classes, folder, len(names))
	}
	return nil
}

// classCount returns the number of folders, of which each contains one class.
// Without folders it returns the value of --classes or its default, 1000.
func (s *settings) classCount(folders []string) int {
	switch {
	case folders != nil:
		return len(folders)
	case s.classes > 0:
		return s.classes
	}
	return 1000
}

// synthesize generates --samples artificial training pictures of 32 x 32
// pixels, which the program resizes later. It also generates test pictures, a
// sixth of this number.
func (s *settings) synthesize(seed uint64) (source, error) {
	const side = 32
	draw := func(first, samples int) (data.Dataset[data.Picture], error) {
		made, err := data.MakePictures(seed, first, samples)
		return data.Map(made, func(x data.Image) (data.Picture, error) {
			return data.Picture{Image: x, Height: side, Width: side}, nil
		}), err
	}
	if s.classes > 0 && s.classes < 10 {
		return source{}, fmt.Errorf("--classes is %d: artificial pictures have 10", s.classes)
	}
	train, err := draw(0, s.samples)
	if err != nil {
		return source{}, err
	}
	test, err := draw(s.samples, max(1, s.samples/6))
	return source{train: train, test: test, classes: s.classCount(nil)}, err
}

// pictures opens a folder or TFRecord files. For a folder it also returns the
// names of the classes; for TFRecord files the names are nil.
func (s *settings) pictures(name string, skipped *data.Skipped) (data.Dataset[data.Picture], []string, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		folder, err := data.OpenPictures(name)
		if err != nil {
			return nil, nil, err
		}
		return data.SkipCorrupt(folder, skipped), folder.Classes, nil
	}
	files, err := data.Files(name)
	if err != nil {
		return nil, nil, err
	}
	records, err := data.OpenRecords(skipped, files...)
	if err != nil {
		return nil, nil, err
	}
	return data.SkipCorrupt(data.Map(records, s.picture), skipped), nil, nil
}

// picture decodes a record: a tf.train.Example with an encoded image and its
// class, under the feature names of TensorFlow's image datasets.
func (s *settings) picture(r data.Record) (data.Picture, error) {
	e, err := data.ParseExample(r.Data)
	if err != nil {
		return data.Picture{}, r.Wrong(err)
	}
	encoded, err1 := e.OneBytes("image/encoded")
	label, err2 := e.Int("image/class/label")
	if err := errors.Join(err1, err2); err != nil {
		return data.Picture{}, r.Wrong(err)
	}
	first, classes := int64(s.firstLabel), int64(s.classCount(nil))
	if label < first || label >= first+classes {
		return data.Picture{}, r.Wrong(fmt.Errorf("class %d, want %d to %d: set --classes and --first-label", label, first, first+classes-1))
	}
	p, err := data.DecodePicture(encoded)
	p.Label = int(label - first)
	return p, r.Wrong(err)
}
