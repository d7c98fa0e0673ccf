package launcher

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

	"github.com/plx-run/plx/launcher/agent"
)

// store makes path the file f, of which from brings the bytes: whole or not at
// all. What is there already is looked at and never replaced; there tells that
// it is the same.
func store(ctx context.Context, path string, f agent.KeptFile, from func(ctx context.Context, w io.Writer) error) (there bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return true, compare(path, f)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, ownFault{err}
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+f.Name+"-*")
	if err != nil {
		return false, ownFault{err}
	}
	defer os.Remove(temporary.Name()) // not there any more where all went well
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

// ownFault marks an error of this machine's side, which no other host mends.
type ownFault struct{ error }

func (e ownFault) Unwrap() error { return e.error }

// compare says what is wrong with a file that is there already.
func compare(path string, f agent.KeptFile) error {
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
		return ownFault{fmt.Errorf("%s is there already and is another file: it is left as it is", path)}
	}
	return nil
}

// receive writes the bytes that from brings, and verifies them.
func receive(ctx context.Context, file *os.File, f agent.KeptFile, from func(context.Context, io.Writer) error) error {
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
		return fmt.Errorf("%s: %d bytes came, want %d", f.Name, f.Size-v.left, f.Size)
	case hex.EncodeToString(sum.Sum(nil)) != f.Sum:
		return fmt.Errorf("%s: its sum is wrong: it is damaged there", f.Name)
	}
	if err := file.Sync(); err != nil {
		return ownFault{err}
	}
	return nil
}

// verified writes to a file no more than it is to have.
type verified struct {
	file   *os.File
	left   int64
	failed error // of this machine
}

func (v *verified) Write(p []byte) (int, error) {
	if v.left -= int64(len(p)); v.left < 0 {
		return 0, errors.New("more bytes came than the manifest says")
	}
	n, err := v.file.Write(p)
	if err != nil {
		v.failed = err
	}
	return n, err
}
