package data

import (
	"errors"
	"fmt"
	"sync"
)

// Skipped counts corrupt samples that are skipped. Readers take one: nil makes a
// corrupt sample an error. Any goroutine may use it.
type Skipped struct {
	tell func(error)

	mu   sync.Mutex
	seen map[string]bool // by error text: a sample counts once however often it is met
}

// NewSkipped counts from 0. tell is called once for every corrupt sample, with an
// error that names its file and offset.
func NewSkipped(tell func(error)) *Skipped { return &Skipped{tell: tell, seen: map[string]bool{}} }

// Count is the number of corrupt samples that were met so far.
func (s *Skipped) Count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// skips reports whether err is about a corrupt sample that is to be skipped, and
// counts it. Errors of the file system are never skipped.
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

// mostInARow bounds how many corrupt samples are skipped one after the other. More
// are no accident.
const mostInARow = 100

// SkipCorrupt returns d without its corrupt samples: the next sample that is not
// corrupt takes the place of one. So all others keep their place, and the order
// is the same in every run. If s is nil it returns d.
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
