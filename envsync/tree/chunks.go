package tree

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"iter"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the chunking algorithm fastcdc
)

// Chunks lists the consecutive chunks of a large file. The string holds the
// ChunkSum and the length of each chunk, as bytes, so that entries of a
// manifest are comparable with ==. Chunk boundaries depend only on the bytes
// around them. If bytes in the middle of a file change, the chunks before and
// after stay the same. So a host that has the old file lacks only a few chunks
// of the new one.
type Chunks string

// ChunkSum identifies a chunk by the first 16 bytes of its SHA-256. The host
// verifies the whole file by its full SHA-256 (type Sum).
type ChunkSum [16]byte

// chunkSize is the number of bytes in a Chunks string per chunk: the sum and a
// length of 4 bytes.
const chunkSize = len(ChunkSum{}) + 4

const (
	leastChunked = 1 << 20   // minimum size in bytes of a file that is split into chunks
	minChunk     = 16 << 10  // minimum length in bytes of a chunk; the last one may be shorter
	meanChunk    = 64 << 10  // mean length in bytes of a chunk; the list of chunks has 20 bytes per chunk, so it is 0.03 % of the file's size
	maxChunk     = 256 << 10 // maximum length in bytes of a chunk
)

// All iterates over the chunks: the ChunkSum of each and its length in bytes.
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

// MarshalText encodes the list of chunks as base64.
func (c Chunks) MarshalText() ([]byte, error) {
	return base64.RawStdEncoding.AppendEncode(nil, []byte(c)), nil
}

// UnmarshalText decodes the output of MarshalText.
func (c *Chunks) UnmarshalText(text []byte) error {
	raw, err := base64.RawStdEncoding.AppendDecode(nil, text)
	*c = Chunks(raw)
	return err
}

// check returns an error unless c is well-formed and its lengths add up to
// size, the length of the file.
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

// splitChunks splits the content of r into chunks. It copies the content to w,
// and returns the chunks and the number of bytes.
func splitChunks(r io.Reader, w io.Writer) (Chunks, int64, error) {
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
