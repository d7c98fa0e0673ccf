// Package atomicfile writes files so that other processes read either the old
// content or the complete new content:
//
//	err := atomicfile.WriteFile(path, text, 0o600)
//
// The new content is first written to a temporary file in the same folder,
// whose name begins with a dot and the name of path. A process that is killed
// may leave that file behind.
//
// The package creates no folder. It does not sync, so the file may be empty
// after a power failure. Package trainer/checkpoint writes files that must
// survive a power failure.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the content and the mode of the file at path. The umask
// does not apply to mode.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	return Write(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// Write replaces the file at path, as WriteFile does. The function fill writes
// the new content to its argument. If fill returns an error, the old file
// stays.
func Write(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	err = fill(f)
	// CreateTemp has already set mode 0600. Chmod to the same mode is left
	// out, because it fails on some file systems.
	if mode != 0o600 {
		err = errors.Join(err, f.Chmod(mode))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // ignore a failed removal: err is more important
	}
	return err
}
