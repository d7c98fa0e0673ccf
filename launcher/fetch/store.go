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

	"github.com/plx-run/plx/launcher/protocol"
)

// source writes the bytes of a file from an offset on.
type source func(ctx context.Context, to io.Writer, offset int64) error

// leastKept is how much of a file must have come for the next fetch to go on from there.
const leastKept = 1 << 20

// store writes the file f to path, whole or not at all; from writes its bytes. A file that
// is there already is not replaced: there reports that it is the same. What has come of a file when
// its host was lost stays, under a name that begins with a dot, and the next store goes on there.
func store(ctx context.Context, path string, f protocol.CheckpointFile, from source) (there bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return true, compare(path, f)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, ownFault{err}
	}
	part, err := openPart(filepath.Dir(path), f)
	if err != nil {
		return false, ownFault{err}
	}
	fresh := false
	for begun := true; begun && err == nil; { // again from its beginning if what was there is of something else
		fresh = fresh || part.offset == 0
		err = part.receive(ctx, f, from)
		begun = errors.As(err, new(errSum)) && !fresh
		if begun {
			fresh, err = true, nil
			if failed := part.clear(); failed != nil {
				err = ownFault{failed}
			}
		}
	}
	if err == nil {
		if err = os.Rename(part.Name(), path); err != nil {
			err = ownFault{err}
		}
	}
	if err != nil && (part.alone || part.offset < leastKept || errors.As(err, new(errSum)) || errors.As(err, new(ownFault))) {
		_ = os.Remove(part.Name()) // the first error says more
	}
	if closed := part.Close(); err == nil && closed != nil { // gives the lock up
		err = ownFault{closed}
	}
	return false, err
}

// part is a file of which a part may be there.
type part struct {
	*os.File
	offset int64     // bytes in it
	sum    hash.Hash // of these
	alone  bool      // nobody will find it again
}

// openPart opens what is there of a file, or makes it. Only one process at a time writes it; another
// one gets a file of its own.
func openPart(dir string, f protocol.CheckpointFile) (*part, error) {
	file, err := os.OpenFile(filepath.Join(dir, ".plx-"+f.Sum[:32]), os.O_RDWR|os.O_CREATE, 0o600) // not the name, which may be long
	if err != nil {
		return nil, err
	}
	p := &part{sum: sha256.New()}
	if !own(file) {
		p.alone = true
		if err := file.Close(); err != nil {
			return nil, err
		}
		if file, err = os.CreateTemp(dir, ".plx-*"); err != nil {
			return nil, err
		}
	}
	p.File = file
	if p.offset, err = io.Copy(p.sum, file); err == nil && p.offset > f.Size {
		err = p.clear()
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

// clear begins anew.
func (p *part) clear() error {
	p.sum.Reset()
	p.offset = 0
	_, err := p.Seek(0, io.SeekStart)
	return errors.Join(err, p.Truncate(0))
}

// ownFault marks an error of this machine: to try another host does not help.
type ownFault struct{ error }

func (e ownFault) Unwrap() error { return e.error }

// compare returns an error unless the file at path is f.
func compare(path string, f protocol.CheckpointFile) error {
	file, err := os.Open(path)
	if err != nil {
		return ownFault{err}
	}
	defer file.Close() // only read
	sum := sha256.New()
	n, err := io.Copy(sum, file)
	if err != nil {
		return ownFault{err}
	}
	if n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.Sum {
		return ownFault{fmt.Errorf("%s is there already and is another file: plx does not replace it", path)}
	}
	return nil
}

// errSum says that a file is another one than its host has listed.
type errSum struct{ error }

// receive writes the rest of f, and verifies it. A file that has grown since
// the host listed it is taken as it was then.
func (p *part) receive(ctx context.Context, f protocol.CheckpointFile, from source) error {
	v := &verified{file: p.File, left: f.Size - p.offset, sum: p.sum}
	var err error
	if v.left > 0 {
		err = from(ctx, v, p.offset)
	}
	p.offset = f.Size - v.left
	switch {
	case v.failed != nil:
		return ownFault{v.failed}
	case err != nil && !v.grown:
		return err
	case v.left != 0:
		return fmt.Errorf("%s: %d bytes arrived, want %d", f.Name, f.Size-v.left, f.Size)
	case hex.EncodeToString(p.sum.Sum(nil)) != f.Sum:
		return errSum{fmt.Errorf("%s: its sum is wrong: it is damaged there, or was written meanwhile: fetch again once nothing writes it", f.Name)}
	}
	if err := p.Sync(); err != nil {
		return ownFault{err}
	}
	return nil
}

// verified writes to a file, and takes no more bytes than the host has listed.
type verified struct {
	file   *os.File
	sum    hash.Hash // of the bytes in the file
	left   int64     // bytes that are still to come
	grown  bool      // more bytes came than were listed
	failed error     // of a write to file; nil: none has failed
}

// errGrown ends the transfer of a file after the bytes that its host listed.
var errGrown = errors.New("all bytes that the host listed have arrived, and more")

func (v *verified) Write(p []byte) (int, error) {
	take := p[:min(int64(len(p)), v.left)]
	n, err := v.file.Write(take)
	v.left -= int64(n)
	v.sum.Write(take[:n]) // never fails
	if err != nil {
		v.failed = err
		return n, err
	}
	if len(take) < len(p) {
		v.grown = true
		return n, errGrown
	}
	return n, nil
}
