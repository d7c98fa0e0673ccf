//go:build linux

package store

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/fanout"
	"github.com/plx-run/plx/envsync/tree"
)

const (
	maxWindow = 64 << 20  // maximum zstd window in bytes, which is the memory that decompression needs
	small     = 256 << 10 // size in bytes up to which a file is read into memory, so that several files can be written in parallel
	writers   = 4         // maximum number of files written in parallel
	abandoned = 24 * time.Hour
)

// Serve is the counterpart of tree.Send and runs on the host. It reads a
// manifest from in and writes to out which pieces the store lacks. Then it
// receives and stores these pieces, calls finish with the manifest's ID, and
// writes tree.DoneReply. finish may be nil; an error of finish fails the
// transfer. After an error the store contains the files that were complete,
// and no partial file. Serve uses network for connections to other hosts, to
// which it forwards files and from which it receives them.
func (s *Store) Serve(ctx context.Context, in io.Reader, out io.Writer, network fanout.Network, finish func(id tree.Sum) error) error {
	r := bufio.NewReader(in)
	m, err := tree.ReadManifest(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.incoming(), 0o700); err != nil {
		return fmt.Errorf("make the store of files: %w", err)
	}
	s.removeAbandoned()
	lacks := s.lacking(m)
	if err := s.checkSpace(m, lacks.files); err != nil {
		return err
	}
	if _, err := out.Write(lacks.pieces); err != nil {
		return err
	}
	answer := func() error {
		_, err := io.WriteString(out, tree.DoneReply)
		return err
	}
	if lacks.travels() {
		part, err := fanout.Receive(ctx, r, out, s.incoming(), network)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		defer part.Close()
		if err := s.receive(ctx, part, lacks); err != nil {
			return err
		}
		answer = part.Finish
	} else if err := s.storeAll(ctx, strings.NewReader(""), lacks); err != nil { // the store has all chunks already, so nothing is read from a stream
		return err
	}
	text := m.Encode()
	id := tree.Sum(sha256.Sum256(text))
	if !verify(s.Path(id), id) {
		if err := s.put(bytes.NewReader(text), id, int64(len(text))); err != nil {
			return fmt.Errorf("store the list of files: %w", err)
		}
	}
	s.last.Store(&namedManifest{id, m})
	if finish != nil {
		if err := finish(id); err != nil {
			return err
		}
	}
	return answer()
}

// removeAbandoned removes temporary files that interrupted transfers have left more than
// a day ago.
func (s *Store) removeAbandoned() {
	entries, _ := os.ReadDir(s.incoming()) // on an error the next call of Serve tries again
	for _, e := range entries {
		// Use the change time: put sets the modification time to a date in
		// 1980 before it renames the file.
		if info, err := e.Info(); err == nil && time.Since(changeTime(info)) > abandoned {
			_ = os.Remove(filepath.Join(s.incoming(), e.Name())) // on an error the next call of Serve tries again
		}
	}
}

// checkSpace returns an error if the file system has too little free space for the
// contents to store plus the folder that Build creates.
func (s *Store) checkSpace(m tree.Manifest, files []tree.Entry) error {
	_, need := m.Files()
	for _, e := range files {
		need += e.Size
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.dir, &disk); err != nil || disk.Bsize <= 0 {
		return nil // The free space is unknown. A write will fail if the disk is full.
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need {
		largest := tree.Entry{Path: "."}
		for _, e := range m.Entries {
			if e.Size >= largest.Size {
				largest = e
			}
		}
		return fmt.Errorf("the file system of %s has %d MiB left, and the files need %d MiB; the largest is %s", s.dir, free>>20, need>>20+1, largest.Path)
	}
	return nil
}

// receive reads a pack (see tree.Packed and tree.Plain) from in, decompresses
// it if necessary, and stores its files.
func (s *Store) receive(ctx context.Context, in io.Reader, l *lacks) error {
	r := bufio.NewReaderSize(in, small)
	kind, err := r.ReadByte()
	if err != nil {
		return err
	}
	var stream io.Reader = r
	switch kind {
	case tree.Plain:
	case tree.Packed:
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		defer z.Close()
		stream = z
	default:
		return fmt.Errorf("unknown format %q of the stream of files", kind)
	}
	return s.storeAll(ctx, stream, l)
}

// storeAll stores the files in l.files. stream must contain exactly the pieces
// in l.pieces, in their order.
func (s *Store) storeAll(ctx context.Context, stream io.Reader, l *lacks) (err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, e := range l.files {
		if err = ctx.Err(); err == nil {
			err = s.storeFile(stream, e, l, group)
		}
		if err != nil {
			break
		}
	}
	if failed := group.Wait(); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	switch _, err := io.ReadFull(stream, make([]byte, 1)); {
	case err == nil:
		return errors.New("the stream of files is longer than the files")
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("the stream of files does not end where it should: %w", err)
	}
	return nil
}

// storeFile stores the file e. It reads the file's bytes from the stream,
// where they come next, or from chunks that the store has. If the file is
// small, a goroutine of group writes it.
func (s *Store) storeFile(stream io.Reader, e tree.Entry, l *lacks, group *errgroup.Group) error {
	named := func(err error) error {
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("store %s: the stream of files was cut off", e.Path)
		case err != nil:
			return fmt.Errorf("store %s: %w", e.Path, err)
		}
		return nil
	}
	if e.Chunks != "" {
		return named(s.assemble(stream, e, l))
	}
	if e.Size > small {
		return named(s.put(stream, e.Sum, e.Size))
	}
	block := blocks.Get().(*[small]byte)
	if _, err := io.ReadFull(stream, block[:e.Size]); err != nil {
		return named(err)
	}
	group.Go(func() error {
		defer blocks.Put(block)
		return named(s.putSmall(block[:e.Size], e.Sum))
	})
	return nil
}

// Upload writes the manifest with this ID and the contents of its files,
// compressed with zstd, to out. tree.Download reads them.
func (s *Store) Upload(ctx context.Context, id tree.Sum, out io.Writer) error {
	m, err := s.Manifest(id)
	if err != nil {
		return err
	}
	if err := m.Write(out); err != nil {
		return err
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	for _, e := range m.Contents() {
		if err = ctx.Err(); err == nil {
			err = s.give(e, z)
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, z.Close())
}

func (s *Store) give(e tree.Entry, w io.Writer) error {
	if !s.has(e.Sum, e.Size) {
		return fmt.Errorf("the content of %s is not in %s any more", e.Path, s.dir)
	}
	f, err := os.Open(s.Path(e.Sum))
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading: an error of Close does not matter
	_, err = io.CopyN(w, f, e.Size)
	return err
}
