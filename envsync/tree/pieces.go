package tree

import (
	"errors"
	"iter"
)

// Piece is the unit of transfer: a chunk of a large file, or a whole file that
// is not split into chunks.
type Piece struct {
	Entry
	Offset int64    // offset of the piece in the file, in bytes
	Length int64    // length of the piece, in bytes
	Chunk  ChunkSum // hash of the chunk; zero if the piece is a whole file
}

// is reports whether sum is the SHA-256 of the piece's content.
func (p Piece) is(sum Sum) bool {
	if p.Chunks == "" {
		return sum == p.Sum
	}
	return ChunkSum(sum[:len(p.Chunk)]) == p.Chunk
}

// Pieces iterates over the pieces of all files of the manifest, in order, each
// with its index. The index is the piece's bit in a Set.
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

// Pieces iterates over the chunks of a file; a file without chunks is one
// piece.
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

// Set is a bit set of the pieces of a manifest. Bit i stands for the piece
// with index i in Manifest.Pieces.
type Set []byte

// NewSet returns an empty set that has a bit for each piece of m.
func NewSet(m Manifest) Set {
	n := 0
	for _, e := range m.Entries {
		if e.Kind == File {
			n += max(1, e.Chunks.Len())
		}
	}
	return make(Set, (n+7)/8)
}

// Add adds the piece with index i in Manifest.Pieces to the set.
func (s Set) Add(i int) { s[i/8] |= 1 << (i % 8) }

// Pieces returns the pieces of m that are in the set. It returns an error if a
// bit without a piece is set.
func (s Set) Pieces(m Manifest) (pieces []Piece, err error) {
	n := 0
	for i, p := range m.Pieces() {
		if n = i + 1; s[i/8]&(1<<(i%8)) != 0 {
			pieces = append(pieces, p)
		}
	}
	for ; n < 8*len(s); n++ {
		if s[n/8]&(1<<(n%8)) != 0 {
			return nil, errors.New("its reply is invalid")
		}
	}
	return pieces, nil
}
