package data

import (
	"errors"
	"fmt"
	"sync"
)

// Skipped counts the corrupt samples that readers skip. A reader with a nil
// *Skipped returns an error for a corrupt sample instead. A Skipped is safe
// for concurrent use.
type Skipped struct {
	tell func(error)

	mu   sync.Mutex
	seen map[string]bool // error texts of the counted samples, so that a sample that is read twice counts once; guarded by mu
}

// NewSkipped returns a Skipped with a count of 0. The Skipped calls tell once
// for each corrupt sample, with an error that names the file and offset.
func NewSkipped(tell func(error)) *Skipped { return &Skipped{tell: tell, seen: map[string]bool{}} }

// Count returns the number of distinct corrupt samples skipped so far; 0 if s
// is nil.
func (s *Skipped) Count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// skips reports whether the caller should skip the sample that failed with
// err, and counts the sample if so. It returns false for errors of the file
// system.
func (s *Skipped) skips(err error) bool {
	var corrupt *formatError
	if s == nil || !errors.As(err, &corrupt) || errors.Is(err, errOtherSize) {
		return false
	}
	s.mu.Lock()
	known := s.seen[corrupt.Error()]
	s.seen[corrupt.Error()] = true
	s.mu.Unlock()
	if !known {
		s.tell(err)
	}
	return true
}

// mostInARow is the maximum number of consecutive corrupt samples that are
// skipped. If there are more, the file is probably the wrong one, or the disk
// is broken.
const mostInARow = 100

// SkipCorrupt returns a dataset that replaces each corrupt sample of d by the
// next intact one. All other samples keep their index, so the order is the
// same in every run. If s is nil, SkipCorrupt returns d.
func SkipCorrupt[T any](d Dataset[T], s *Skipped) Dataset[T] {
	if s == nil {
		return d
	}
	return skipping[T]{d, s}
}

type skipping[T any] struct {
	from    Dataset[T]
	skipped *Skipped
}

func (d skipping[T]) Len() int         { return d.from.Len() }
func (d skipping[T]) Describe() string { return Describe(d.from) }

func (d skipping[T]) At(i int) (T, error) {
	x, err := d.from.At(i)
	for more := 1; err != nil && d.skipped.skips(err); more++ {
		if more >= min(mostInARow, d.Len()) {
			return x, fmt.Errorf("%d corrupt samples in a row, the last one: %w", more, err)
		}
		x, err = d.from.At((i + more) % d.Len())
	}
	return x, err
}
