package data

import "fmt"

// Dataset is a number of samples with random access. The datasets of this
// package are safe for several goroutines at once.
type Dataset[T any] interface {
	// Len is the number of samples.
	Len() int
	// At returns sample i, 0 <= i < Len(). The caller must not write to it.
	At(i int) (T, error)
}

// Slice is a dataset in memory.
type Slice[T any] []T

// Len is the number of elements.
func (s Slice[T]) Len() int { return len(s) }

// At returns element i.
func (s Slice[T]) At(i int) (T, error) {
	if err := checkIndex(i, len(s)); err != nil {
		var none T
		return none, err
	}
	return s[i], nil
}

func checkIndex(i, n int) error {
	if i < 0 || i >= n {
		return fmt.Errorf("sample %d of a dataset of %d", i, n)
	}
	return nil
}
