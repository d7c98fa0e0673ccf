package checkpoint

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/plx-run/plx/internal/failpoint"
)

// Write makes a file of the checkpoint from what fill writes, and returns its
// size and SHA-256. If it returns nil, the file is on the disk, whole and under
// its name. If it fails, there is no such file, or an earlier one. Only if the
// folder could not be flushed may the new file be there, whole.
func (f *Folder) Write(id, name string, fill func(io.Writer) error) (size int64, sum string, err error) {
	if err := checkPlace(id, name); err != nil {
		return 0, "", fmt.Errorf("checkpoint: write %s: %w", name, err)
	}
	size, sum, err = f.put(id, name, fill)
	if err != nil {
		return 0, "", fmt.Errorf("checkpoint %s: write %s in %s: %w", id, name, f.dir, cause(err))
	}
	return size, sum, nil
}

// WriteManifest completes the checkpoint. The caller has written every file that
// m lists, on whatever host.
func (f *Folder) WriteManifest(m *Manifest) error {
	b, err := m.Encode()
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", m.ID, err)
	}
	if err = f.hook("checkpoint.manifest"); err == nil {
		_, _, err = f.put(m.ID, manifestName, func(w io.Writer) error {
			_, err := w.Write(b)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: write the manifest in %s: %w", m.ID, f.dir, cause(err))
	}
	return nil
}

// put has no deferred clean-up, because tests stop it anywhere, as a crash does.
func (f *Folder) put(id, name string, fill func(io.Writer) error) (int64, string, error) {
	if err := f.makeFolders(f.dir); err != nil { // it may have been removed since OpenFolder
		return 0, "", err
	}
	folder := filepath.Join(f.dir, id)
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, "", err
	}
	if err := f.syncFolder(f.dir); err != nil {
		return 0, "", err
	}
	if err := f.hook("checkpoint.create"); err != nil {
		return 0, "", err
	}
	file, err := os.CreateTemp(folder, "."+name+"."+f.hostPid+".*")
	if err != nil {
		return 0, "", err
	}
	s := &sink{folder: f, file: file, hash: sha256.New()}
	err = s.fill(fill)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = f.rename(file.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		os.Remove(file.Name()) // the first error says more
		return 0, "", err
	}
	return s.size, hex.EncodeToString(s.hash.Sum(nil)), f.syncFolder(folder)
}

func (f *Folder) rename(from, to string) error {
	if err := f.hook("checkpoint.rename"); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// syncFolder flushes a folder: names that were made or removed stay so.
func (f *Folder) syncFolder(path string) error {
	if err := f.hook("checkpoint.syncdir"); err != nil {
		return err
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.flush(folder)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // of file systems that cannot flush a folder
	}
	if closed := folder.Close(); err == nil {
		err = closed
	}
	return err
}

// sink is a file that is hashed as it is written.
type sink struct {
	folder *Folder
	file   *os.File
	hash   hash.Hash
	size   int64
}

const writeBuffer = 1 << 16

// fill writes all of the file to the disk.
func (s *sink) fill(fill func(io.Writer) error) error {
	w := bufio.NewWriterSize(s, writeBuffer)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := s.folder.hook("checkpoint.sync"); err != nil {
		return err
	}
	return s.folder.flush(s.file)
}

func (s *sink) Write(b []byte) (int, error) {
	broken := s.folder.hook("checkpoint.write")
	if errors.Is(broken, failpoint.ErrShort) {
		b = b[:len(b)/2]
	} else if broken != nil {
		return 0, broken
	}
	n, err := s.file.Write(b)
	s.hash.Write(b[:n]) // never fails
	s.size += int64(n)
	return n, cmp.Or(broken, cause(err)) // fill may wrap it
}
