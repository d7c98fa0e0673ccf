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

// source is a function that writes the bytes of a file from an offset to its
// end.
type source func(ctx context.Context, to io.Writer, offset int64) error

// minKept is the size in bytes from which on plx keeps an incomplete file, so
// that the next fetch resumes it.
const minKept = 1 << 20

// store writes the file w to path. The function from provides the bytes. The
// file appears at path only when it is complete.
//
// store does not replace an existing file at path. If that file has the same
// content, store returns there = true; otherwise it returns an error. An
// existing log that is a beginning of w is completed. If the host is lost
// during the transfer, the incomplete file remains under a name that begins
// with a dot, and the next call of store resumes it.
func store(ctx context.Context, path string, w file, from source) (there bool, err error) {
	before, err := os.Lstat(path)
	grows := err == nil && w.log && before.Mode().IsRegular() && before.Size() < w.size
	switch {
	case err == nil && !grows:
		return true, compare(path, w)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, localError{err}
	}
	part, err := openPart(path, w, grows)
	if err != nil {
		return false, localError{err}
	}
	// If an earlier fetch left bytes of another file, the checksum is wrong.
	// The loop then receives all bytes again.
	for begun := true; begun && err == nil; {
		err = part.receive(ctx, w.sum, from)
		begun = errors.As(err, new(errSum)) && !part.fresh
		if begun {
			err = nil
			if failed := part.restart(); failed != nil {
				err = localError{failed}
			}
		}
	}
	if errors.As(err, new(errSum)) && grows {
		err = errExists(path)
	}
	if err == nil {
		if err = os.Rename(part.file.Name(), path); err != nil {
			err = localError{err}
		}
	}
	_ = part.writer.Flush() // ignore the error: if zeros at the end are missing, the next call of store receives them again
	if err != nil && (part.alone || part.offset < minKept || errors.As(err, new(errSum)) || errors.As(err, new(localError))) {
		_ = os.Remove(part.file.Name()) // ignore the error: err already says why the transfer failed
	}
	if closed := part.file.Close(); err == nil && closed != nil { // closing also releases the file lock
		err = localError{closed}
	}
	return false, err
}

// part is an incomplete file. An earlier fetch may have written its first
// bytes.
type part struct {
	file   *os.File
	writer *holes.Writer // writes to file, and leaves holes for zeros
	name   string        // name of the complete file
	size   int64         // size of the complete file, as listed by the host
	offset int64         // number of bytes in file so far
	sum    hash.Hash     // SHA-256 of the bytes in file so far
	before string        // path of an existing local copy that has the first bytes of the log; "" if there is none
	fresh  bool          // true if no bytes in file come from an earlier, interrupted fetch
	alone  bool          // true if file has a random name, so that no later fetch can resume it
}

// openPart opens or creates the incomplete file for path. Only one process at
// a time may write this file. If another process has locked it, openPart
// creates a file with a random name instead. grows says that path has a log
// that is shorter than the host's log w.
func openPart(path string, w file, grows bool) (*part, error) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	begun := w.sum[:32] // part of the checksum instead of the file's name, which may be too long with a prefix
	if w.log {
		begun = name // a log gets its name, because its checksum changes with each line
	}
	file, err := os.OpenFile(filepath.Join(dir, ".plx-"+begun), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &part{name: name, size: w.size, sum: sha256.New()}
	if grows {
		p.before = path
	}
	if !lockPart(file) {
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

// lockPart locks an incomplete file and reports whether it succeeded. It
// returns false if another process holds the lock, or has completed and
// renamed the file before lockPart got the lock.
func lockPart(file *os.File) bool {
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	is, err := file.Stat()
	named, gone := os.Stat(file.Name())
	return err == nil && gone == nil && os.SameFile(is, named)
}

// restart discards all received bytes, and begins again with the bytes of the
// local copy p.before.
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
	defer file.Close() // the file was only read
	_, err = io.Copy(p, file)
	return err
}

// Write returns an error if more bytes arrive than the host has listed.
func (p *part) Write(b []byte) (int, error) {
	if int64(len(b)) > p.size-p.offset {
		return 0, fmt.Errorf("%s: more than %d bytes arrived, which its host has listed", p.name, p.size)
	}
	n, err := p.writer.Write(b)
	p.offset += int64(n)
	p.sum.Write(b[:n]) // a hash never returns an error
	if err != nil {
		err = localError{err}
	}
	return n, err
}

// localError wraps an error of this machine, such as a full disk. After such
// an error, plx does not try another host.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// errExists returns the error for a path at which a different file exists.
func errExists(path string) error {
	return localError{fmt.Errorf("%s already exists with other content: plx does not replace it", path)}
}

// compare returns an error unless the file at path has the size and the
// checksum of w.
func compare(path string, w file) error {
	file, err := os.Open(path)
	if err != nil {
		return localError{err}
	}
	defer file.Close() // the file was only read
	n, sum, err := digest.Of(file)
	if err != nil {
		return localError{err}
	}
	if n != w.size || sum != w.sum {
		return errExists(path)
	}
	return nil
}

// errSum means that the received file does not have the checksum that the host
// has listed.
type errSum struct{ error }

// receive receives the rest of the file and verifies its checksum. If the file
// has grown since the host listed it, only the listed bytes are received.
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
		return errSum{fmt.Errorf("%s: its checksum is wrong: the file is damaged on the host, or changed while it was fetched: fetch it again when nothing writes to it", p.name)}
	}
	if err := errors.Join(p.writer.Flush(), p.file.Sync()); err != nil {
		return localError{err}
	}
	return nil
}
