package main

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/examples/internal/corrupt"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
)

// load returns the samples for training and for the test. It reads them from
// --files, or generates them without that flag. For files, load sets the
// number of features, and uses the last eleventh of the samples for the test.
func (s *settings) load(job *trainer.Job) (train, test *dataset, about string, err error) {
	if s.files == "" {
		made, err := newGenerator(s.dimIn, s.classes, s.seed)
		if err != nil {
			return nil, nil, "", err
		}
		return made.samples(0, s.trainSize), made.samples(s.trainSize, s.trainSize+s.testSize()), "", nil
	}
	rows, err := s.readFiles(job)
	if err != nil {
		return nil, nil, "", fmt.Errorf("--files: %w", err)
	}
	last := max(1, rows.Len()/11)
	if s.trainSize = rows.Len() - last; s.trainSize < s.batchSize {
		return nil, nil, "", fmt.Errorf("--files: %d samples without the test's, want at least one batch of %d", s.trainSize, s.batchSize)
	}
	if train, err = s.samples(rows, 0, s.trainSize); err == nil {
		test, err = s.samples(rows, s.trainSize, rows.Len())
	}
	return train, test, data.Describe(rows), err
}

// readFiles reads all files and interleaves their rows. It counts the corrupt
// CSV rows if --skip-corrupt is given.
func (s *settings) readFiles(job *trainer.Job) (data.Dataset[[]float32], error) {
	skipped := corrupt.Skipped(job, s.skip)
	var files []data.Dataset[[]float32]
	for name := range strings.SplitSeq(s.files, ",") {
		table, err := readTable(skipped, name, s.header)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			s.dimIn = table.Width - 1
		}
		if s.dimIn < 1 || table.Width != s.dimIn+1 {
			return nil, fmt.Errorf("%s has %d columns: want features, and the class in the last column, in each file as many", name, table.Width)
		}
		files = append(files, table)
	}
	corrupt.Log(job, skipped)
	return data.Interleave(files...), nil
}

func readTable(skipped *data.Skipped, name string, header bool) (*data.Table, error) {
	if strings.HasSuffix(name, ".npy") {
		return data.ReadNPY(name)
	}
	return data.ReadCSV(skipped, name, header)
}

// samples converts the rows with indices in [from, to) to a dataset. A row
// contains the features, followed by the class.
func (s *settings) samples(rows data.Dataset[[]float32], from, to int) (*dataset, error) {
	d := &dataset{features: s.dimIn, classes: s.classes}
	for i := from; i < to; i++ {
		row, err := rows.At(i)
		if err != nil {
			return nil, err
		}
		class := row[s.dimIn]
		if !(class >= 0 && class < float32(s.classes)) || class != float32(int(class)) {
			return nil, fmt.Errorf("--files: row %d has class %v, want a whole number from 0 to %d", i, class, s.classes-1)
		}
		d.rows, d.labels = append(d.rows, row[:s.dimIn]...), append(d.labels, int(class))
	}
	return d, nil
}
