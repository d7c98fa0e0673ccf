package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/internal/failpoint"
)

// Folder is where one or several tasks keep checkpoints. Goroutines, processes
// and hosts that share it may call its methods at the same time.
type Folder struct {
	dir     string
	hostPid string                   // in temporary names
	hook    func(place string) error // where tests put faults
	flush   func(*os.File) error     // to the disk; tests replace it
}

// OpenFolder makes the folder if it is missing. Only its owner may use it.
func OpenFolder(dir string) (*Folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint folder %s: %w", dir, err)
	}
	f := &Folder{dir: path, hostPid: hostPid(), hook: failpoint.Here, flush: (*os.File).Sync}
	if err := f.makeFolders(path); err != nil {
		return nil, fmt.Errorf("checkpoint folder %s: make it: %w", path, cause(err))
	}
	return f, nil
}

// makeFolders makes path and the folders above it, and flushes them.
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

// hostPid is a part of temporary names that differs between hosts and processes.
func hostPid() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host" // the random part of the name still differs
	}
	host = strings.ReplaceAll(host, "/", "-")
	return fmt.Sprintf("%s.%d", host[:min(len(host), 64)], os.Getpid())
}

// Open opens a file of a checkpoint for reading.
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
	path := filepath.Join(f.dir, id, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // to open a pipe waits for its writer
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

// Verify reads a file and returns in what it differs from the one that a
// manifest lists.
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
	defer content.Close() // opened for reading: nothing to lose
	info, err := content.Stat()
	if err != nil {
		return err
	}
	if info.Size() != file.Size {
		return fmt.Errorf("it has %d bytes, not %d", info.Size(), file.Size)
	}
	hash := sha256.New()
	if n, err := io.Copy(hash, content); err != nil {
		return err
	} else if n != file.Size {
		return fmt.Errorf("it had %d bytes and then %d: it is being changed", file.Size, n)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != file.Sum {
		return fmt.Errorf("its SHA-256 is %s, not %s: it was damaged", sum, file.Sum)
	}
	return nil
}

// Probe puts a file named by a token into the folder. By it, other tasks find
// out whether their folder is the same one. The token is random.
func (f *Folder) Probe(token string) error {
	if err := checkName(token); err != nil {
		return fmt.Errorf("checkpoint folder %s: probe: %w", f.dir, err)
	}
	file, err := os.OpenFile(f.probe(token), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("checkpoint folder %s: probe: %w", f.dir, cause(err))
	}
	return nil
}

// Sees reports whether a probe of that token is in the folder.
func (f *Folder) Sees(token string) bool {
	if checkName(token) != nil {
		return false
	}
	_, err := os.Lstat(f.probe(token))
	return err == nil
}

// Unprobe removes a probe, if there is one.
func (f *Folder) Unprobe(token string) error {
	if err := checkName(token); err != nil {
		return fmt.Errorf("checkpoint folder %s: remove the probe: %w", f.dir, err)
	}
	if err := unlessGone(os.Remove(f.probe(token))); err != nil {
		return fmt.Errorf("checkpoint folder %s: remove the probe: %w", f.dir, cause(err))
	}
	return nil
}

func (f *Folder) probe(token string) string { return filepath.Join(f.dir, ".probe-"+token) }

// cause drops the operation and the path, which messages have already.
func cause(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	}
	return err
}
