// Package atomicfile writes files that appear whole or not at all:
//
//	err := atomicfile.WriteFile(path, text, 0o600)
//
// Other processes read the old content or the whole new one. The new content first lies in a file
// beside path, whose name begins with a dot and with that of path. A process that is killed leaves
// that file.
//
// # What it refuses to do
//
// It makes no folder. It does not sync: after a power cut the file may be empty. Package
// trainer/checkpoint writes what must outlast one.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the content and the mode of the file at path. The umask does not change the mode.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	return Write(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// Write is WriteFile of what fill writes. An error of fill leaves the old file.
func Write(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	err = fill(f)
	if mode != 0o600 { // the mode that it has; some file systems refuse every change
		err = errors.Join(err, f.Chmod(mode))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // the first error says more
	}
	return err
}
