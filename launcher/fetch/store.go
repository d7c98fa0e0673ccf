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

	"github.com/plx-run/plx/launcher/protocol"
)

// store writes the file f to path, whole or not at all; from writes its bytes. A file that
// is there already is not replaced: there reports that it is the same.
func store(ctx context.Context, path string, f protocol.CheckpointFile, from func(ctx context.Context, w io.Writer) error) (there bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return true, compare(path, f)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, ownFault{err}
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".plx-*") // not the name, which may be long
	if err != nil {
		return false, ownFault{err}
	}
	defer os.Remove(temporary.Name()) // after a success it is not there
	err = receive(ctx, temporary, f, from)
	if closed := temporary.Close(); err == nil && closed != nil {
		err = ownFault{closed}
	}
	if err != nil {
		return false, err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return false, ownFault{err}
	}
	return false, nil
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

// receive writes the bytes of f to a file, and verifies them. A file that has grown since
// the host listed it is taken as it was then.
func receive(ctx context.Context, file *os.File, f protocol.CheckpointFile, from func(context.Context, io.Writer) error) error {
	v := &verified{file: file, left: f.Size, sum: sha256.New()}
	err := from(ctx, v)
	switch {
	case v.failed != nil:
		return ownFault{v.failed}
	case err != nil && !v.grown:
		return err
	case v.left != 0:
		return fmt.Errorf("%s: %d bytes arrived, want %d", f.Name, f.Size-v.left, f.Size)
	case hex.EncodeToString(v.sum.Sum(nil)) != f.Sum:
		return fmt.Errorf("%s: its sum is wrong: it is damaged there, or was written meanwhile: fetch again once nothing writes it", f.Name)
	}
	if err := file.Sync(); err != nil {
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
