package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// pack is contents on their way to hosts that lack the same ones: one zstd stream of
// the files in their order, without their lengths, which the manifest has. It is
// compressed once, into a temporary file that the hosts' connections read while it
// grows.
type pack struct {
	file  *os.File
	raw   int64         // bytes of all files
	ended chan struct{} // closed when the file does not grow any more

	err error // why the file is not complete, valid once ended is closed; nil: it is

	mu    sync.Mutex
	size  int64         // bytes of the file that are written
	moved chan struct{} // closed, and replaced, when size changes
}

// newPack begins to pack the files of entries of f. It must be closed.
func newPack(ctx context.Context, f *Folder, entries []Entry) (*pack, error) {
	file, err := os.CreateTemp("", "plx-send-*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file here: %w", err)
	}
	// Without a name nothing is left of it, whatever ends this process.
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p := &pack{file: file, moved: make(chan struct{}), ended: make(chan struct{})}
	for _, e := range entries {
		p.raw += e.Size
	}
	go func() {
		defer close(p.ended)
		p.err = p.fill(ctx, f, entries)
	}()
	return p, nil
}

// close waits until the file does not grow any more.
func (p *pack) close() error {
	<-p.ended
	return p.file.Close()
}

func (p *pack) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	if err != nil {
		return n, fmt.Errorf("write a temporary file here: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size += int64(n)
	close(p.moved)
	p.moved = make(chan struct{})
	return n, nil
}

func (p *pack) written() (size int64, moved <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size, p.moved
}

// failed returns why the pack is not complete. Nil: it is, or is still growing.
func (p *pack) failed() error {
	select {
	case <-p.ended:
		return p.err
	default:
		return nil
	}
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

// pour writes a file, which must still be what Scan found.
func (f *Folder) pour(w io.Writer, e Entry) error {
	file, _, err := openFile(f.file(e))
	if err != nil {
		return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
	}
	defer file.Close() // only read
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(file, e.Size))
	if err != nil {
		return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
	}
	if more, _ := file.Read(make([]byte, 1)); more > 0 || n != e.Size || Sum(hash.Sum(nil)) != e.Sum {
		return fmt.Errorf("%s: %w", shown(e.Path), errChanged)
	}
	return nil
}

// copyTo writes the whole stream to w, as far as it is there and then as it grows.
// tell gets the bytes so far and in all; in all is a guess until the pack is
// complete.
func (p *pack) copyTo(ctx context.Context, w io.Writer, tell func(sent, total int64)) error {
	buf, at := make([]byte, 256<<10), int64(0)
	for complete := false; ; {
		size, moved := p.written()
		if at == size && complete {
			return p.err
		}
		if at == size {
			select {
			case <-moved:
			case <-p.ended:
				complete = true // what was written before counts
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		n, err := p.file.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil {
			return fmt.Errorf("read a temporary file here: %w", err)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		at += int64(n)
		if !complete {
			size = max(p.raw, size)
		}
		tell(at, size)
	}
}
