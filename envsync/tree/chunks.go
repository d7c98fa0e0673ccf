package tree

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"iter"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the algorithm
)

// Chunks are the parts of a large file, one after the other. Where one ends depends on the
// bytes around it alone: after a change in the middle of a file the chunks before and behind
// it are the same ones. So a host that has the former file lacks few of them. Chunks are the
// sum and the length of each, as bytes, so that entries can be compared.
type Chunks string

// ChunkSum names a chunk: the first half of its SHA-256. The whole file has a Sum.
type ChunkSum [16]byte

// chunkSize is how many bytes of Chunks are for one.
const chunkSize = len(ChunkSum{}) + 4

const (
	leastChunked = 1 << 20   // bytes of a file that has chunks
	minChunk     = 16 << 10  // bytes of a chunk but the last
	meanChunk    = 64 << 10  // with 20 bytes for each chunk, a list of chunks has 0.03 % of the file
	maxChunk     = 256 << 10 // bytes of a chunk
)

// All returns the chunks with their lengths.
func (c Chunks) All() iter.Seq2[ChunkSum, int64] {
	return func(yield func(ChunkSum, int64) bool) {
		for ; len(c) >= chunkSize; c = c[chunkSize:] {
			sum := ChunkSum([]byte(c[:len(ChunkSum{})]))
			if !yield(sum, int64(binary.LittleEndian.Uint32([]byte(c[len(sum):chunkSize])))) {
				return
			}
		}
	}
}

// Len returns the number of chunks.
func (c Chunks) Len() int { return len(c) / chunkSize }

// MarshalText writes chunks as text.
func (c Chunks) MarshalText() ([]byte, error) {
	return base64.RawStdEncoding.AppendEncode(nil, []byte(c)), nil
}

// UnmarshalText reads what MarshalText wrote.
func (c *Chunks) UnmarshalText(text []byte) error {
	raw, err := base64.RawStdEncoding.AppendDecode(nil, text)
	*c = Chunks(raw)
	return err
}

// check refuses chunks that are not those of a file of a size.
func (c Chunks) check(size int64) error {
	for _, n := range c.All() {
		if size -= n; n == 0 || n > maxChunk {
			return errors.New("a chunk has a wrong length")
		}
	}
	if size != 0 || len(c)%chunkSize != 0 {
		return errors.New("its chunks are not as long as the file")
	}
	return nil
}

// cut splits r into chunks, and passes all that it reads to w.
func cut(r io.Reader, w io.Writer) (Chunks, int64, error) {
	c, err := chunkers.NewChunker("fastcdc-v1.0.0", r, &chunkers.ChunkerOpts{MinSize: minChunk, NormalSize: meanChunk, MaxSize: maxChunk})
	if err != nil {
		return "", 0, err
	}
	var all []byte
	var size int64
	for {
		chunk, err := c.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return "", size, err
		}
		if len(chunk) > 0 {
			sum := sha256.Sum256(chunk)
			all = binary.LittleEndian.AppendUint32(append(all, sum[:len(ChunkSum{})]...), uint32(len(chunk)))
			size += int64(len(chunk))
			if _, err := w.Write(chunk); err != nil {
				return "", size, err
			}
		}
		if err != nil {
			return Chunks(all), size, nil
		}
	}
}
