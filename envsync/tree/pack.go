package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

	"github.com/plx-run/plx/envsync/relay"
)

// pack is contents on their way to hosts that lack the same ones: one zstd stream of
// the files in their order, without their lengths, which the manifest has. It is
// compressed once, and sent while it grows.
type pack struct {
	*relay.Spool
	raw   int64        // bytes of all files
	group *relay.Group // hosts that get it
}

// relayed is from how many bytes on hosts pass a pack on to each other. A smaller one is
// sent in the time in which they find each other.
const relayed = 4 << 20

// newPack begins to pack the files of entries of f for n hosts at most. It must be closed.
func newPack(ctx context.Context, f *Folder, entries []Entry, n int, o SendOptions) (*pack, error) {
	spool, err := relay.NewSpool("")
	if err != nil {
		return nil, fmt.Errorf("pack files here: %w", err)
	}
	p := &pack{Spool: spool}
	for _, e := range entries {
		p.raw += e.Size
	}
	p.group = relay.NewGroup(spool, n, o.Direct || p.raw < relayed, o.Low, o.High)
	go func() { p.End(p.fill(ctx, f, entries)) }()
	return p, nil
}

// total returns the bytes of the pack. It is a guess until the pack is complete.
func (p *pack) total() int64 {
	size, ended := p.Size()
	if ended {
		return size
	}
	return max(p.raw, size)
}

func (p *pack) fill(ctx context.Context, f *Folder, entries []Entry) error {
	z, err := zstd.NewWriter(p, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err = ctx.Err(); err == nil {
			err = f.pour(z, e)
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, z.Close())
}

// pour writes a file, which must still begin with what Scan found.
func (f *Folder) pour(w io.Writer, e Entry) error {
	file, _, err := openFile(f.file(e))
	if errors.Is(err, fs.ErrNotExist) && f.contents == "" {
		return &ChangedError{e.Path}
	} else if err != nil {
		return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
	}
	defer file.Close() // only read
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(file, e.Size))
	if err != nil {
		return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
	}
	if n != e.Size || Sum(hash.Sum(nil)) != e.Sum {
		return &ChangedError{e.Path}
	}
	return nil
}
