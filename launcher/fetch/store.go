package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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

// receive writes the bytes of f to a file, and verifies them.
func receive(ctx context.Context, file *os.File, f protocol.CheckpointFile, from func(context.Context, io.Writer) error) error {
	v := &verified{file: file, left: f.Size}
	sum := sha256.New()
	if err := from(ctx, io.MultiWriter(v, sum)); err != nil {
		if v.failed != nil {
			return ownFault{v.failed}
		}
		return err
	}
	switch {
	case v.left != 0:
		return fmt.Errorf("%s: %d bytes arrived, want %d", f.Name, f.Size-v.left, f.Size)
	case hex.EncodeToString(sum.Sum(nil)) != f.Sum:
		return fmt.Errorf("%s: its sum is wrong: it is damaged there, or was changed meanwhile", f.Name)
	}
	if err := file.Sync(); err != nil {
		return ownFault{err}
	}
	return nil
}

// verified writes to a file, and refuses more bytes than the manifest says.
type verified struct {
	file   *os.File
	left   int64 // bytes that the manifest still allows
	failed error // of a write to file; nil: none has failed
}

func (v *verified) Write(p []byte) (int, error) {
	if v.left -= int64(len(p)); v.left < 0 {
		return 0, errors.New("more bytes arrived than the host listed: the file was changed meanwhile")
	}
	n, err := v.file.Write(p)
	if err != nil {
		v.failed = err
	}
	return n, err
}
