package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/digest"
	"github.com/plx-run/plx/internal/holes"
)

// source writes the bytes of a file from an offset on.
type source func(ctx context.Context, to io.Writer, offset int64) error

// leastKept is how much of a file must have come for the next fetch to go on from there.
const leastKept = 1 << 20

// store writes a file to path, whole or not at all; from writes its bytes. A file that
// is there already is not replaced: there reports that it is the same. Only to a log that is there are
// the bytes added that the tasks have printed since. What has come of a file when
// its host was lost stays, under a name that begins with a dot, and the next store goes on there.
func store(ctx context.Context, path string, w file, from source) (there bool, err error) {
	before, err := os.Lstat(path)
	grows := err == nil && w.log && before.Mode().IsRegular() && before.Size() < w.size
	switch {
	case err == nil && !grows:
		return true, compare(path, w)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, ownFault{err}
	}
	part, err := openPart(path, w, grows)
	if err != nil {
		return false, ownFault{err}
	}
	for begun := true; begun && err == nil; { // again from its beginning if what was there is of something else
		err = part.receive(ctx, w.sum, from)
		begun = errors.As(err, new(errSum)) && !part.fresh
		if begun {
			err = nil
			if failed := part.restart(); failed != nil {
				err = ownFault{failed}
			}
		}
	}
	if errors.As(err, new(errSum)) && grows {
		err = another(path)
	}
	if err == nil {
		if err = os.Rename(part.file.Name(), path); err != nil {
			err = ownFault{err}
		}
	}
	_ = part.writer.Flush() // else the next store gets some zeros again
	if err != nil && (part.alone || part.offset < leastKept || errors.As(err, new(errSum)) || errors.As(err, new(ownFault))) {
		_ = os.Remove(part.file.Name()) // the first error says more
	}
	if closed := part.file.Close(); err == nil && closed != nil { // gives the lock up
		err = ownFault{closed}
	}
	return false, err
}

// part is a file of which a part may be there.
type part struct {
	file   *os.File
	writer *holes.Writer // of file
	name   string        // of the whole file
	size   int64         // of the whole file, as its host has listed it
	offset int64         // bytes in it
	sum    hash.Hash     // of these
	before string        // a file with its first bytes; "": there is none
	fresh  bool          // all bytes in it are those of before, or were received just now
	alone  bool          // nobody will find it again
}

// openPart opens what is there of the file at path, or makes it. Only one process at a time writes
// it; another one gets a file of its own. With grows the file at path has its first bytes.
func openPart(path string, w file, grows bool) (*part, error) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	begun := w.sum[:32] // not the name, which may be long
	if w.log {
		begun = name // the sum changes with each line
	}
	file, err := os.OpenFile(filepath.Join(dir, ".plx-"+begun), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &part{name: name, size: w.size, sum: sha256.New()}
	if grows {
		p.before = path
	}
	if !own(file) {
		p.alone = true
		if err := file.Close(); err != nil {
			return nil, err
		}
		if file, err = os.CreateTemp(dir, ".plx-*"); err != nil {
			return nil, err
		}
	}
	p.file = file
	p.offset, err = io.Copy(p.sum, file)
	p.writer = holes.NewWriter(file, p.offset)
	if err == nil && (p.offset == 0 || p.offset > w.size) {
		err = p.restart()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

// own locks a file, and reports whether that was possible. Another process may have completed it
// meanwhile, and given it its name.
func own(file *os.File) bool {
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	is, err := file.Stat()
	named, gone := os.Stat(file.Name())
	return err == nil && gone == nil && os.SameFile(is, named)
}

// restart begins anew, after the bytes of before.
func (p *part) restart() error {
	p.sum.Reset()
	p.offset, p.fresh = 0, true
	_, err := p.file.Seek(0, io.SeekStart)
	p.writer = holes.NewWriter(p.file, 0)
	if err = errors.Join(err, p.file.Truncate(0)); err != nil || p.before == "" {
		return err
	}
	file, err := os.Open(p.before)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	_, err = io.Copy(p, file)
	return err
}

// Write takes no more bytes than the host has listed.
func (p *part) Write(b []byte) (int, error) {
	if int64(len(b)) > p.size-p.offset {
		return 0, fmt.Errorf("%s: more than %d bytes arrived, which its host has listed", p.name, p.size)
	}
	n, err := p.writer.Write(b)
	p.offset += int64(n)
	p.sum.Write(b[:n]) // never fails
	if err != nil {
		err = ownFault{err}
	}
	return n, err
}

// ownFault marks an error of this machine: to try another host does not help.
type ownFault struct{ error }

func (e ownFault) Unwrap() error { return e.error }

// another is the error of a path at which another file is.
func another(path string) error {
	return ownFault{fmt.Errorf("%s is there already and is another file: plx does not replace it", path)}
}

// compare returns an error unless the file at path is w.
func compare(path string, w file) error {
	file, err := os.Open(path)
	if err != nil {
		return ownFault{err}
	}
	defer file.Close() // only read
	n, sum, err := digest.Of(file)
	if err != nil {
		return ownFault{err}
	}
	if n != w.size || sum != w.sum {
		return another(path)
	}
	return nil
}

// errSum says that a file is another one than its host has listed.
type errSum struct{ error }

// receive writes the rest of a file, and verifies it. A file that has grown since
// the host listed it is taken as it was then.
func (p *part) receive(ctx context.Context, sum string, from source) error {
	if p.offset < p.size {
		if err := from(ctx, p, p.offset); err != nil {
			return err
		}
	}
	switch {
	case p.offset != p.size:
		return fmt.Errorf("%s: %d bytes arrived, want %d", p.name, p.offset, p.size)
	case hex.EncodeToString(p.sum.Sum(nil)) != sum:
		return errSum{fmt.Errorf("%s: its sum is wrong: it is damaged there, or was written meanwhile: fetch again once nothing writes it", p.name)}
	}
	if err := errors.Join(p.writer.Flush(), p.file.Sync()); err != nil {
		return ownFault{err}
	}
	return nil
}
