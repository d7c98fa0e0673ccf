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

	"github.com/plx-run/plx/internal/digest"
)

// Folder is a directory in which one or more tasks store checkpoints.
// Goroutines, processes and hosts that share the directory may call its
// methods at the same time.
type Folder struct {
	dir   string
	hook  func(place string) error // called with a disk operation's name before it starts; tests return an error to make it fail
	flush func(*os.File) error     // flushes a file or folder to disk (fsync); tests replace it
}

// hook is the initial value of Folder.hook. A build with the tag failpoint
// replaces hook to inject faults.
var hook = func(place string) error { return nil }

// OpenFolder opens the folder dir of checkpoints, and creates it with mode
// 0700 if it is missing.
func OpenFolder(dir string) (*Folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint folder %s: %w", dir, err)
	}
	f := &Folder{dir: path, hook: hook, flush: (*os.File).Sync}
	if err := f.makeFolders(path); err != nil {
		return nil, fmt.Errorf("checkpoint folder %s: make it: %w", path, cause(err))
	}
	return f, nil
}

// Split splits the path of one checkpoint's folder into the folder of all
// checkpoints and the checkpoint's ID. If path is not the folder of a finished
// checkpoint, Split returns path itself and the ID "".
func Split(path string) (dir, id string) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return path, ""
	}
	if _, err := parseID(filepath.Base(whole)); err != nil {
		return path, ""
	}
	if _, err := os.Lstat(filepath.Join(whole, manifestName)); err != nil {
		return path, ""
	}
	return filepath.Dir(whole), filepath.Base(whole)
}

// makeFolders creates path and its missing parents, and flushes each parent to
// disk.
func (f *Folder) makeFolders(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is a file, not a folder", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(path)
	if err := f.makeFolders(above); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.syncFolder(above)
}

// Open opens a data file of the checkpoint id for reading.
func (f *Folder) Open(id, name string) (*os.File, error) {
	file, err := f.open(id, name)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: open %s: %w", id, name, cause(err))
	}
	return file, nil
}

func (f *Folder) open(id, name string) (*os.File, error) {
	if err := checkPlace(id, name); err != nil {
		return nil, err
	}
	return openRegular(filepath.Join(f.dir, id, name))
}

func openRegular(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // Open only regular files: opening a named pipe would block until a process writes to it.
		return nil, errors.New("it is not a regular file")
	}
	return os.Open(path)
}

func checkPlace(id, name string) error {
	if _, err := parseID(id); err != nil {
		return err
	}
	return checkName(name)
}

// Verify reads a data file of the checkpoint id. It returns an error if the
// size or SHA-256 differs from file, which is the manifest's entry.
func (f *Folder) Verify(id string, file File) error {
	if err := f.verify(id, file); err != nil {
		return fmt.Errorf("checkpoint %s: %s in %s: %w", id, file.Name, f.dir, cause(err))
	}
	return nil
}

func (f *Folder) verify(id string, file File) error {
	content, err := f.open(id, file.Name)
	if err != nil {
		return err
	}
	defer content.Close() // error ignored: the file was only read
	info, err := content.Stat()
	if err != nil {
		return err
	}
	if info.Size() != file.Size {
		return fmt.Errorf("it has %d bytes, not %d", info.Size(), file.Size)
	}
	n, sum, err := digest.Of(content)
	if err != nil {
		return err
	}
	if n != file.Size {
		return fmt.Errorf("it had %d bytes and then %d: it is being changed", file.Size, n)
	}
	if sum != file.Sum {
		return fmt.Errorf("its SHA-256 is %s, not %s: it was damaged", sum, file.Sum)
	}
	return nil
}

// Probe creates an empty folder with token, a random string, in its name.
// Other tasks that see it with [Folder.Sees] know that they share this folder.
func (f *Folder) Probe(token string) error {
	path, err := f.probe(token)
	if err == nil {
		err = os.Mkdir(path, 0o700)
	}
	if err != nil {
		return fmt.Errorf("checkpoint folder %s: probe: %w", f.dir, cause(err))
	}
	return nil
}

// Sees reports whether the folder contains a probe that Probe created with
// token.
func (f *Folder) Sees(token string) bool {
	path, err := f.probe(token)
	if err == nil {
		_, err = os.Lstat(path)
	}
	return err == nil
}

// Unprobe removes the probe that Probe created with token, if it exists.
func (f *Folder) Unprobe(token string) error {
	path, err := f.probe(token)
	if err == nil {
		err = ignoreNotExist(os.Remove(path))
	}
	if err != nil {
		return fmt.Errorf("checkpoint folder %s: remove the probe: %w", f.dir, cause(err))
	}
	return nil
}

func (f *Folder) probe(token string) (path string, err error) {
	return filepath.Join(f.dir, ".probe-"+token), checkName(token)
}

// cause returns err without the operation and the path, because the callers'
// messages contain them already.
func cause(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	}
	return err
}

// Write creates a data file of the checkpoint with the content that fill
// writes, and returns its size and SHA-256. If Write succeeds, the whole file
// is on disk under its name. If Write fails, the name does not exist or has
// its earlier content. There is one exception: if flushing the folder failed,
// the new file may exist under its name, complete.
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

// WriteManifest writes the manifest of a checkpoint, which makes the
// checkpoint valid. Every file that m lists must have been written before, by
// any host.
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

// put writes a file under a temporary name, flushes it and renames it. It does
// not clean up in deferred calls, because crash tests make a hook panic at any
// step and then expect what a crash leaves.
func (f *Folder) put(id, name string, fill func(io.Writer) error) (int64, string, error) {
	if err := f.makeFolders(f.dir); err != nil { // a user may have removed the folder since OpenFolder created it
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
	file, err := os.CreateTemp(folder, "."+name+".*")
	if err != nil {
		return 0, "", err
	}
	s := &sink{folder: f, file: file, hash: sha256.New()}
	err = s.fill(fill)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = f.hook("checkpoint.rename")
	}
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		os.Remove(file.Name()) // error ignored: err is the cause and is returned
		return 0, "", err
	}
	return s.size, hex.EncodeToString(s.hash.Sum(nil)), f.syncFolder(folder)
}

// syncFolder flushes a folder to disk, so that files created or removed in it
// stay so after a power failure.
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
		err = nil // this file system cannot flush a folder
	}
	if closed := folder.Close(); err == nil {
		err = closed
	}
	return err
}

// sink writes to a file and computes the SHA-256 and the size of what it
// writes.
type sink struct {
	folder *Folder
	file   *os.File
	hash   hash.Hash
	size   int64 // number of bytes written so far
}

const writeBuffer = 1 << 16

// fill calls the function in its parameter fill with a buffered writer to the
// file. It then flushes the file to disk.
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
	if errors.Is(broken, io.ErrShortWrite) {
		b = b[:len(b)/2]
	} else if broken != nil {
		return 0, broken
	}
	n, err := s.file.Write(b)
	s.hash.Write(b[:n]) // Ignore the results: a hash's Write never returns an error.
	s.size += int64(n)
	return n, cmp.Or(broken, cause(err)) // Remove the path from the error before the function fill can wrap the error.
}
