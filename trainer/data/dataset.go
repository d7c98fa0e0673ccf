package data

import (
	"fmt"
	"slices"
	"sort"
)

// Dataset is a sequence of samples with random access. At may be called from
// several goroutines at once.
type Dataset[T any] interface {
	// Len is the number of samples.
	Len() int
	// At returns sample i, 0 <= i < Len(). The caller must not modify the
	// sample.
	At(i int) (T, error)
}

// described is implemented by a dataset that can describe its content in more
// detail than its length.
type described interface{ Describe() string }

// Describe returns a description of d: the number of its samples and, for data
// read from files, its classes and a checksum. Two hosts with the same files
// get the same text.
func Describe[T any](d Dataset[T]) string {
	if d, ok := d.(described); ok {
		return d.Describe()
	}
	return fmt.Sprintf("%d samples", d.Len())
}

func checkIndex(i, n int) error {
	if i < 0 || i >= n {
		return fmt.Errorf("sample %d of a dataset of %d", i, n)
	}
	return nil
}

// Map returns a dataset whose sample i is f applied to sample i of d. Each
// call of At calls f; several goroutines may call f at once.
func Map[T, U any](d Dataset[T], f func(T) (U, error)) Dataset[U] { return mapped[T, U]{d, f} }

type mapped[T, U any] struct {
	from Dataset[T]
	f    func(T) (U, error)
}

func (m mapped[T, U]) Len() int         { return m.from.Len() }
func (m mapped[T, U]) Describe() string { return Describe(m.from) }

func (m mapped[T, U]) At(i int) (made U, err error) {
	x, err := m.from.At(i)
	if err != nil {
		return made, err
	}
	return m.f(x)
}

// Part returns a dataset of the samples of d with indices from <= i < to.
func Part[T any](d Dataset[T], from, to int) (Dataset[T], error) {
	if from < 0 || from > to || to > d.Len() {
		return nil, fmt.Errorf("samples %d to %d of a dataset of %d", from, to, d.Len())
	}
	return part[T]{d, from, to}, nil
}

type part[T any] struct {
	from   Dataset[T]
	lo, hi int
}

func (p part[T]) Len() int { return p.hi - p.lo }

func (p part[T]) Describe() string {
	return fmt.Sprintf("samples %d to %d of %s", p.lo, p.hi, Describe(p.from))
}

func (p part[T]) At(i int) (T, error) {
	if err := checkIndex(i, p.Len()); err != nil {
		var none T
		return none, err
	}
	return p.from.At(p.lo + i)
}

// Interleave returns a dataset that takes samples from the parts in turn: the
// first sample of each part, then the second of each, and so on. Parts are
// ordered by length, the longest first; parts of equal length keep their
// order. A part with no samples left is skipped.
func Interleave[T any](parts ...Dataset[T]) Dataset[T] {
	if len(parts) == 1 {
		return parts[0]
	}
	d := &interleaved[T]{parts: slices.Clone(parts)}
	slices.SortStableFunc(d.parts, func(a, b Dataset[T]) int { return b.Len() - a.Len() })
	round := 0
	for active := len(d.parts); active > 0; active-- {
		if n := d.parts[active-1].Len(); n > round { // The longest parts, parts[:active], have samples in rounds round to n-1.
			d.phases = append(d.phases, phase{d.length, round, active})
			d.length, round = d.length+(n-round)*active, n
		}
	}
	return d
}

type interleaved[T any] struct {
	parts  []Dataset[T] // sorted by length, the longest first
	phases []phase
	length int
}

// phase is a range of rounds of an interleaved dataset in which the same parts
// have samples left. A round takes one sample from each of these parts.
type phase struct {
	begin int // index of the phase's first sample in the interleaved dataset
	round int // the phase's first round, which is also the index of its samples in their parts
	parts int // number of parts that have samples left in this phase
}

func (d *interleaved[T]) Len() int { return d.length }

func (d *interleaved[T]) Describe() string {
	text := fmt.Sprintf("%d samples of %d parts", d.length, len(d.parts))
	for _, p := range d.parts {
		text += "; " + Describe(p)
	}
	return text
}

func (d *interleaved[T]) At(i int) (T, error) {
	if err := checkIndex(i, d.length); err != nil {
		var none T
		return none, err
	}
	p := d.phases[sort.Search(len(d.phases), func(k int) bool { return d.phases[k].begin > i })-1]
	i -= p.begin
	return d.parts[i%p.parts].At(p.round + i/p.parts)
}

// share divides n items into `of` contiguous ranges and returns range number
// share, [lo, hi). The bounds are share*n/of and (share+1)*n/of, rounded down.
// The ranges cover every item once, and their lengths differ by at most one.
func share(n, share, of int) (lo, hi int) {
	// share*n could overflow. With n = q*of + r, floor(share*n/of) = share*q +
	// floor(share*r/of).
	q, r := n/of, n%of
	return share*q + share*r/of, (share+1)*q + (share+1)*r/of
}
