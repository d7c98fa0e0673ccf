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
	"slices"
	"sync"
)

// Target is one host to bring a blob to.
type Target struct {
	// Name is the host's name in errors and progress.
	Name string
	Host Host
	// FileSystem is Facts.FileSystem: hosts with equal names share the home
	// folder. Empty means that no other host shares it.
	FileSystem string
	// Has are the sums of blobs that the host is known to have: it is not asked for these.
	Has []string
	// Offer has the host, which has the blob, give it to other targets. Nil: it does not.
	Offer func(ctx context.Context) (Offer, error)
}

// Progress is told of every piece that was handed to a host's connection, or that a host
// has taken from another one: sent of total bytes of the named blob. A blob that is there
// already, or that came through a shared home, is told once, with sent 0 of total 0. The
// others are first told with sent 0. Sync calls it from
// one goroutine at a time, so it needs no lock and must not block.
type Progress func(host, blob string, sent, total int64)

// maxHosts is how many hosts are worked on at once.
const maxHosts = 64

// Sync brings a blob to targets, all hosts at once, and sends it once for hosts that share
// a home. It travels compressed to hosts that have gzip. Of many hosts only some get it from
// here; the others take it from a Target that has it, and offers it. The
// blob is sent to a temporary name, its hash
// verified on the host, flushed to its disk, and then renamed. What is there
// already is hashed on the host, once in each boot of it unless the file has
// changed, and sent again only if it is wrong; its time is set to now, give or
// take an hour, so that the oldest blobs are those no longer used. What is no
// file in a blob's place is removed. On a nil error the blob is at BlobPath
// on every target.
//
// A host that fails does not stop the others. The error joins one for each
// host that failed, which names host and blob. Sync returns early only when
// ctx ends. progress may be nil, and lost, which is told if a host could not take the blob from
// another one, so that this machine sends it.
func Sync(ctx context.Context, targets []Target, blob Blob, progress Progress, lost func(why string)) error {
	s := &syncer{blob: blob, progress: progress, peers: newPeers(blob, lost)}
	defer s.peers.close()
	return Each(ctx, targets, func(i int, shared bool) error { return s.host(ctx, targets[i], shared) })
}

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
			errs[i] = fmt.Errorf("host %s: sync: %w", targets[i].Name, ctx.Err())
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

type syncer struct {
	blob     Blob
	peers    *peers
	lock     sync.Mutex // serialises progress
	progress Progress   // nil means that nobody wants to know
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

// host brings the blob to one host. shared says that another host has just
// put it into this one's home.
func (s *syncer) host(ctx context.Context, t Target, shared bool) error {
	var found looked
	var err error
	missing := !slices.Contains(t.Has, s.blob.Sum)
	if missing {
		if found, err = look(ctx, t.Host, s.blob, shared); err != nil {
			return fmt.Errorf("host %s: sync: %w", t.Name, err)
		}
		missing = found.missing
	}
	if !missing {
		s.tell(t.Name, 0, 0)
		s.peers.add(t)
		return nil
	}
	if err := s.bring(ctx, t, found.gzip); err != nil {
		return fmt.Errorf("host %s: send %s: %w", t.Name, s.blob.Name, err)
	}
	return nil
}

// bring gives the blob to a host that lacks it.
func (s *syncer) bring(ctx context.Context, t Target, gzip bool) (err error) {
	from := s.peers.choose(ctx, t)
	defer func() { s.peers.done(from, t, err) }()
	if from != nil {
		s.tell(t.Name, 0, s.blob.Size)
		failed := s.peers.fetch(ctx, from, t)
		if failed == nil {
			s.tell(t.Name, s.blob.Size, s.blob.Size)
			return nil
		}
		from = s.peers.miss(from, failed)
	}
	u, err := newUpload(s.blob, gzip)
	if err != nil {
		return err
	}
	s.tell(t.Name, 0, u.size)
	return u.run(ctx, t.Host, func(sent int64) {
		s.peers.progress()
		s.tell(t.Name, sent, u.size)
	})
}

func (s *syncer) tell(host string, sent, total int64) {
	if s.progress == nil {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.progress(host, s.blob.Name, sent, total)
}

// telling is a reader that tells how far it has been read.
type telling struct {
	r    io.Reader
	sent int64            // number of bytes read
	tell func(sent int64) // gets sent after every read
}

func (t *telling) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.sent += int64(n)
		t.tell(t.sent)
	}
	return n, err
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
