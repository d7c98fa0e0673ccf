package envsync

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// Blobs of these sizes are compressed for hosts that have gzip. The others are too small
// for it to matter, or too large to be kept in memory.
const (
	leastPacked = 64 << 10
	mostPacked  = 256 << 20
)

// packing is the content of a blob in the format of gzip, made once for all hosts.
type packing struct {
	once sync.Once
	data []byte // nil: it would hardly be smaller
	err  error
}

// Packed returns the content of b in the format of gzip, for hosts that have that program; nil:
// they get it as it is.
func (b Blob) Packed() ([]byte, error) {
	if b.Size < leastPacked || b.Size > mostPacked {
		return nil, nil
	}
	return b.pack.of(b)
}

func (p *packing) of(b Blob) ([]byte, error) {
	p.once.Do(func() { p.data, p.err = compress(b) })
	return p.data, p.err
}

func compress(b Blob) ([]byte, error) {
	content, err := b.open()
	if err != nil {
		return nil, fmt.Errorf("read it here: %w", err)
	}
	defer content.Close() // opened for reading: nothing to lose
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(z, content); err != nil {
		return nil, fmt.Errorf("read it here: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if int64(out.Len()) > b.Size/10*9 {
		return nil, nil
	}
	return out.Bytes(), nil
}
