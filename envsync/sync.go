package envsync

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
	"sync"
)

// Target is one host to bring something to.
type Target struct {
	// Name is the host's name in errors.
	Name string
	// FileSystem is Facts.FileSystem: hosts with equal names share the home
	// folder. Empty means that no other host shares it.
	FileSystem string
}

// Progress is told of every piece that was handed to a host's connection, or that a host
// has taken from another one: sent of total bytes of the named blob. It is first told with sent 0.
// It must not block.
type Progress func(host, blob string, sent, total int64)

// maxHosts is how many hosts are worked on at once.
const maxHosts = 64

// Each calls work for every target, for many at once, with the target's index. Of
// hosts that share a home it works on one after the other until one has succeeded,
// and then on the rest at once: for those shared is true, and each looks for itself
// what it has, since equal names of file systems may also come from a copied disk.
// The error joins those of all targets; an error of ctx names the host.
func Each(ctx context.Context, targets []Target, work func(i int, shared bool) error) error {
	slots := make(chan struct{}, maxHosts)
	errs := make([]error, len(targets))
	one := func(i int, shared bool) error {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			errs[i] = work(i, shared)
		case <-ctx.Done():
			errs[i] = fmt.Errorf("host %s: %w", targets[i].Name, ctx.Err())
		}
		return errs[i]
	}
	var wait sync.WaitGroup
	for _, group := range sharing(targets) {
		wait.Go(func() {
			var rest sync.WaitGroup
			for done := false; len(group) > 0; group = group[1:] {
				if i := group[0]; done {
					rest.Go(func() { _ = one(i, true) }) // errs has it
				} else {
					done = one(i, false) == nil
				}
			}
			rest.Wait()
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// sharing returns the indices of targets, those with one file system together
// and in the order of their first host.
func sharing(targets []Target) [][]int {
	var groups [][]int
	byFileSystem := map[string]int{}
	for i, t := range targets {
		at, known := byFileSystem[t.FileSystem]
		if !known || t.FileSystem == "" {
			at = len(groups)
			groups = append(groups, nil)
			byFileSystem[t.FileSystem] = at
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// Blob is one immutable file on its way to hosts. It may be sent to several
// hosts at once.
type Blob struct {
	// Name is a base name for messages, not a path on the host.
	Name string
	// Sum is the lower-case hexadecimal SHA-256 of the content.
	Sum string
	// Size is the length of the content in bytes.
	Size int64
	// Mode is 0700 for what a host may execute and 0600 for the rest. On a
	// host every blob has 0700, since equal content is one file there.
	Mode fs.FileMode
	// Path is the file on this machine.
	Path string

	open func() (io.ReadCloser, error)
	pack *packing
}

// FileBlob makes a blob of a regular file, such as a program. The file is
// read now for its sum, and again for every upload: one that changes in
// between is noticed on the host and refused there.
func FileBlob(path string) (Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	defer f.Close() // opened for reading: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	if !info.Mode().IsRegular() {
		return Blob{}, fmt.Errorf("read %s: it is not a regular file", path)
	}
	b := Blob{Name: filepath.Base(path), Path: path, Mode: 0o600, open: func() (io.ReadCloser, error) { return os.Open(path) }, pack: new(packing)}
	if info.Mode()&0o111 != 0 {
		b.Mode = 0o700
	}
	hash := sha256.New()
	if b.Size, err = io.Copy(hash, f); err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	b.Sum = hex.EncodeToString(hash.Sum(nil))
	return b, nil
}

// Open opens the content for reading.
func (b Blob) Open() (io.ReadCloser, error) { return b.open() }

// BlobPath is where the blob of a sum lies on a host, relative to the home
// folder.
func BlobPath(sum string) string { return blobFolder + sum }

const blobFolder = ".plx/blobs/"

// rootCause drops the "open PATH:" that the callers' messages have already.
func rootCause(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
