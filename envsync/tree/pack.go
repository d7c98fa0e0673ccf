package tree

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

	"github.com/plx-run/plx/envsync/fanout"
)

// pack is the stream of pieces (chunks of large files, and whole smaller
// files) that is sent to all hosts that lack the same pieces. The stream
// begins with one byte, Packed (zstd) or Plain. The pieces follow in order,
// without their lengths, which the manifest contains. A pack is written once,
// to disk, and sent while it grows.
type pack struct {
	*fanout.Spool
	raw   int64         // uncompressed size of all pieces in bytes
	group *fanout.Group // distributes the pack to the hosts that lack its pieces
}

// Values of the first byte of a pack: a zstd stream follows (Packed), or
// uncompressed pieces (Plain).
const (
	Packed = 'z'
	Plain  = 'p'
)

// minForwarded is the minimum size in bytes of a pack that hosts forward to each
// other. Sending a smaller pack directly to each host takes less time than
// connecting the hosts.
const minForwarded = 4 << 20

// newPack starts a goroutine that packs the given pieces of f (chunks of
// files) into one stream, for at most n hosts. The caller must close the pack.
func newPack(ctx context.Context, f *Folder, pieces []Piece, n int, o SendOptions) (*pack, error) {
	p := &pack{}
	for _, piece := range pieces {
		p.raw += piece.Length
	}
	dir := ""
	if o.Spool != nil {
		dir = o.Spool(p.raw)
	}
	spool, err := fanout.NewSpool(dir)
	if err != nil {
		return nil, fmt.Errorf("pack files here: %w", err)
	}
	p.Spool = spool
	p.group = fanout.NewGroup(spool, n, p.raw < minForwarded, o.Low, o.High)
	go func() { p.End(p.fill(ctx, f, pieces)) }()
	return p, nil
}

// total returns the size of the pack (stream of file contents) in bytes. Until
// the pack is complete, the result is an estimate.
func (p *pack) total() int64 {
	size, ended := p.Size()
	if ended {
		return size
	}
	return max(p.raw, size)
}

func (p *pack) fill(ctx context.Context, f *Folder, pieces []Piece) error {
	b := bufio.NewWriterSize(p, 256<<10) // The writer is buffered, because otherwise each small file would need a system call of its own.
	kind, to, end := byte(Plain), io.Writer(b), b.Flush
	if f.shrinks(pieces) {
		z, err := zstd.NewWriter(p, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return err
		}
		kind, to, end = Packed, z, z.Close
	}
	if _, err := p.Write([]byte{kind}); err != nil {
		return errors.Join(err, end())
	}
	var err error
	for n := 0; len(pieces) > 0 && err == nil; pieces = pieces[n:] {
		for n = 1; n < len(pieces) && pieces[n].Path == pieces[0].Path; {
			n++
		}
		if err = ctx.Err(); err == nil {
			err = f.pour(to, pieces[:n])
		}
	}
	return errors.Join(err, end())
}

// pour writes pieces, which must belong to one file, to w. It returns a
// ChangedError if the file has changed since Scan listed the folder.
func (f *Folder) pour(w io.Writer, pieces []Piece) error {
	e := pieces[0].Entry
	file, _, err := openFile(f.file(e))
	if errors.Is(err, fs.ErrNotExist) && f.contents == "" {
		return &ChangedError{e.Path}
	} else if err != nil {
		return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
	}
	defer file.Close() // opened for reading: an error of Close does not matter
	for _, p := range pieces {
		hash := sha256.New()
		n, err := io.Copy(io.MultiWriter(w, hash), io.NewSectionReader(file, p.Offset, p.Length))
		if err != nil {
			return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
		}
		if n != p.Length || !p.is(Sum(hash.Sum(nil))) {
			return &ChangedError{e.Path}
		}
	}
	return nil
}

// The method shrinks compresses samples from at most 16 places (the constant
// samples), each of at most 16 KiB (sampled).
const samples, sampled = 16, 16 << 10

// shrinks compresses samples of the pieces. It reports whether that saves more
// than a tenth, in which case all pieces are worth compressing.
func (f *Folder) shrinks(pieces []Piece) bool {
	all := int64(0)
	for _, p := range pieces {
		all += p.Length
	}
	var text []byte
	at, next := int64(0), int64(0)
	for _, p := range pieces {
		if at += p.Length; at > next {
			text = append(text, f.sample(p)...)
			next = at + all/samples
		}
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return true
	}
	defer z.Close() // the encoder has no output, so an error of Close does not matter
	return len(z.EncodeAll(text, nil)) < len(text)/10*9
}

// sample returns the first bytes of a piece, at most sampled bytes. If the
// file cannot be read, it returns fewer bytes and no error, because the method
// pour reads the file later and reports the error.
func (f *Folder) sample(p Piece) []byte {
	file, _, err := openFile(f.file(p.Entry))
	if err != nil {
		return nil
	}
	defer file.Close() // opened for reading: an error of Close does not matter
	b := make([]byte, min(sampled, p.Length))
	n, _ := file.ReadAt(b, p.Offset)
	return b[:n]
}
