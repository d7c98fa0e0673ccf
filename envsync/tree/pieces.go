package tree

import (
	"errors"
	"iter"
)

// Piece is what travels or does not: a chunk of a file, or a whole file without chunks.
type Piece struct {
	Entry
	Offset int64    // in the file
	Length int64    // in bytes
	Chunk  ChunkSum // of a file with chunks
}

// is reports whether sum is the SHA-256 of the piece.
func (p Piece) is(sum Sum) bool {
	if p.Chunks == "" {
		return sum == p.Sum
	}
	return ChunkSum(sum[:len(p.Chunk)]) == p.Chunk
}

// Pieces returns all pieces of a manifest's files, in their order, with their numbers.
func (m Manifest) Pieces() iter.Seq2[int, Piece] {
	return func(yield func(int, Piece) bool) {
		i := 0
		for _, e := range m.Entries {
			if e.Kind != File {
				continue
			}
			for p := range e.Pieces() {
				if !yield(i, p) {
					return
				}
				i++
			}
		}
	}
}

// Pieces returns the pieces of a file.
func (e Entry) Pieces() iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		if e.Chunks == "" {
			yield(Piece{Entry: e, Length: e.Size})
			return
		}
		p := Piece{Entry: e}
		for p.Chunk, p.Length = range e.Chunks.All() {
			if !yield(p) {
				return
			}
			p.Offset += p.Length
		}
	}
}

// Set is a set of a manifest's pieces, one bit for each.
type Set []byte

// NewSet returns an empty set.
func NewSet(m Manifest) Set {
	n := 0
	for _, e := range m.Entries {
		if e.Kind == File {
			n += max(1, e.Chunks.Len())
		}
	}
	return make(Set, (n+7)/8)
}

// Add adds the piece with the number i.
func (s Set) Add(i int) { s[i/8] |= 1 << (i % 8) }

// Pieces returns the pieces of the set. It refuses a set with anything else.
func (s Set) Pieces(m Manifest) (pieces []Piece, err error) {
	n := 0
	for i, p := range m.Pieces() {
		if n = i + 1; s[i/8]&(1<<(i%8)) != 0 {
			pieces = append(pieces, p)
		}
	}
	for ; n < 8*len(s); n++ {
		if s[n/8]&(1<<(n%8)) != 0 {
			return nil, errors.New("its answer is damaged")
		}
	}
	return pieces, nil
}
