//go:build linux

// Package store keeps file contents on a host, each under its SHA-256, and
// builds folders from them. It is the host's side of package tree:
//
//	s := store.Open("/home/u/.plx/files")
//	err := s.Serve(ctx, os.Stdin, os.Stdout, nil) // takes what tree.Send sends
//	...
//	err = s.Build(ctx, id, "/home/u/.plx/jobs/j/h/work", nil)
//
// # When the store trusts a file
//
// After a power cut a file may have the right size but wrong content. Flushing
// thousands of files to disk takes long, so the store does not flush. Instead,
// it trusts a file that was written or hashed since the host booted, and
// hashes any other file before use. The inode's change time shows when a file
// was written or hashed. The store also sets each file's modification time to
// a date in 1980; if another program writes to the file, that date changes,
// and the store hashes the file.
//
// These times cannot reveal everything: a disk may corrupt data, and a program
// can reset times. So Build hashes what it copies. A file that Build clones is
// not read, and is hashed once a day.
package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/internal/digest"
	"github.com/plx-run/plx/internal/holes"
)

// Store is a content store: a folder that contains files named by the SHA-256
// of their content.
type Store struct {
	dir    string
	beside string                        // second folder that contains files under their SHA-256, set by WithExtraContents; "" if there is none
	last   atomic.Pointer[namedManifest] // cache of the manifest that was read last; nil if none was read yet
}

// WithExtraContents adds a second folder, dir, whose files are named by the
// hexadecimal SHA-256 of their content. The store treats these contents as
// present and takes chunks from them. WithExtraContents returns s.
func (s *Store) WithExtraContents(dir string) *Store {
	s.beside = dir
	return s
}

// namedManifest is a manifest in the store together with its ID, the SHA-256
// of its encoding.
type namedManifest struct {
	id tree.Sum
	tree.Manifest
}

// Open returns the store in the folder dir. The folder need not exist yet.
func Open(dir string) *Store { return &Store{dir: dir} }

// verifiedEpoch is the base of the modification times that the store sets. A file
// whose content was verified on day n since 1970 gets the modification time
// verifiedEpoch plus n seconds.
var verifiedEpoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// verifiedTime returns the modification time for a file whose content is verified
// at time t.
func verifiedTime(t time.Time) time.Time {
	return verifiedEpoch.Add(time.Duration(dayOf(t)) * time.Second)
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// verifiedDay returns the day since 1970 on which a file with this
// modification time was last verified. It returns false if the store never
// sets such a time, which means that another program has written to the file.
// Earlier versions of plx set day 0.
func verifiedDay(modified time.Time) (day int64, ok bool) {
	day = modified.Unix() - verifiedEpoch.Unix()
	return day, 0 <= day && day <= dayOf(time.Now())+1 // day may be tomorrow, because the clocks of hosts that share a home folder differ
}

// useInterval is the age from which a use of a stored file renews the file's
// change time (ctime). Prune deletes files whose change time is old.
const useInterval = time.Hour

// Path returns the path that the file with this SHA-256 has in the store. The
// store need not contain the file.
func (s *Store) Path(sum tree.Sum) string {
	name := sum.String()
	return s.dir + "/" + name[:2] + "/" + name[2:]
}

// incoming returns the folder of temporary files that are being received.
func (s *Store) incoming() string { return filepath.Join(s.dir, "incoming") }

// has reports whether the store has a file of size bytes whose SHA-256 is sum.
// If the file's times do not show that it is intact, has computes its hash.
func (s *Store) has(sum tree.Sum, size int64) bool {
	file := s.Path(sum)
	var info unix.Stat_t
	err := again(func() error { return unix.Lstat(file, &info) })
	if err != nil || info.Mode&unix.S_IFMT != unix.S_IFREG || info.Size != size {
		return false
	}
	trusted, inUse := checkTimes(&info)
	if trusted && inUse {
		return true
	}
	modified := time.Unix(info.Mtim.Unix())
	if !trusted {
		if !verify(file, sum) {
			return false
		}
		modified = verifiedTime(time.Now())
	}
	_ = os.Chtimes(file, modified, modified) // if the file system cannot set times, the content is hashed at its next use too
	return true
}

// checkTimes judges a stored file by its times. trusted means that the file
// was written or hashed since this host booted. inUse means that its change
// time is so recent that Prune keeps the file.
func checkTimes(info *unix.Stat_t) (trusted, inUse bool) {
	_, stamped := verifiedDay(time.Unix(info.Mtim.Unix()))
	changed, now := time.Unix(info.Ctim.Unix()), time.Now()
	return stamped && changed.After(bootTime()) && !changed.After(now.Add(time.Minute)), now.Sub(changed) < useInterval
}

// verify hashes a file and reports whether its SHA-256 is sum.
func verify(file string, sum tree.Sum) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close() // opened for reading: an error of Close does not matter
	_, got, err := digest.Of(f)
	return err == nil && got == sum.String()
}

// changeTime returns the time of the last change of a file's inode (ctime).
func changeTime(info fs.FileInfo) time.Time {
	s := info.Sys().(*syscall.Stat_t) // on Linux the type is always *syscall.Stat_t
	return time.Unix(s.Ctim.Unix())
}

// bootTime returns the time at which this host booted.
var bootTime = sync.OnceValue(func() time.Time {
	text, _ := os.ReadFile("/proc/stat") // on an error the text is empty and bootTimeIn returns its default
	return bootTimeIn(string(text))
})

// bootTimeIn returns the boot time in text, the content of /proc/stat. If text
// contains no boot time, it returns a time far in the future, so that no file
// is trusted.
func bootTimeIn(text string) time.Time {
	for line := range strings.Lines(text) {
		seconds, found := strings.CutPrefix(line, "btime ")
		if n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64); found && err == nil {
			return time.Unix(n+1, 0)
		}
	}
	return time.Unix(1<<40, 0)
}

var errDamaged = errors.New("it was damaged on the way")

// put reads size bytes from r and stores them under sum, which must be their
// SHA-256. It writes to a temporary file, verifies the hash and renames the
// file. After an error no file is left.
func (s *Store) put(r io.Reader, sum tree.Sum, size int64) (err error) {
	temporary := filepath.Join(s.incoming(), rand.Text())
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cause(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary))
		}
	}()
	hash, w := sha256.New(), holes.NewWriter(f, 0)
	if _, err = io.CopyN(io.MultiWriter(w, hash), r, size); err == nil {
		err = w.Flush()
	}
	if failed := f.Close(); err == nil {
		err = failed
	}
	if err != nil {
		return cause(err)
	}
	if tree.Sum(hash.Sum(nil)) != sum {
		return errDamaged
	}
	found := verifiedTime(time.Now())
	if err := os.Chtimes(temporary, found, found); err != nil {
		return cause(err)
	}
	return s.settle(temporary, sum)
}

// putSmall stores a content that is in memory. It creates the file under its
// final name, and sets the modification time to a date in 1980 after it has
// written the last byte. An interrupted call leaves a file with a recent
// modification time, which the store does not trust. After an error no file is
// left.
func (s *Store) putSmall(content []byte, sum tree.Sum) error {
	if tree.Sum(sha256.Sum256(content)) != sum {
		return errDamaged
	}
	file := s.Path(sum)
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	fd, err := openFile(file, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(file), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			fd, err = openFile(file, flags, 0o600)
		}
	}
	if errors.Is(err, fs.ErrExist) { // The file was left by an interrupted write, or another process writes the same content now.
		return s.put(bytes.NewReader(content), sum, int64(len(content)))
	}
	if err != nil {
		return cause(err)
	}
	err = writeAll(fd, content)
	if failed := unix.Close(fd); err == nil {
		err = failed
	}
	if err == nil {
		found := verifiedTime(time.Now())
		err = os.Chtimes(file, found, found)
	}
	if err != nil {
		return errors.Join(cause(err), os.Remove(file))
	}
	return nil
}

// settle renames a temporary file to its final path, which depends on sum, the
// SHA-256 of its content. It creates the parent folder if necessary.
func (s *Store) settle(temporary string, sum tree.Sum) error {
	err := os.Rename(temporary, s.Path(sum))
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(s.Path(sum)), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Rename(temporary, s.Path(sum))
		}
	}
	return cause(err)
}

// Manifest returns the manifest with this ID, which Serve has stored. The
// caller must not modify it.
func (s *Store) Manifest(id tree.Sum) (m tree.Manifest, err error) {
	if last := s.last.Load(); last != nil && last.id == id {
		return last.Manifest, nil
	}
	text, err := bounded.ReadFile(s.Path(id), tree.MaxManifest)
	if err != nil {
		return tree.Manifest{}, fmt.Errorf("read the list of files: %w", err)
	}
	if sha256.Sum256(text) != id {
		return tree.Manifest{}, fmt.Errorf("read the list of files: %s is damaged", s.Path(id))
	}
	if m, err = tree.Decode(text); err == nil {
		s.last.Store(&namedManifest{id, m})
	}
	return m, err
}

// Prune calls remove for each stored file that was not used since the time
// before, unless a manifest in keep lists the file.
func (s *Store) Prune(ctx context.Context, keep []tree.Sum, before time.Time, remove func(path string, size int64) error) error {
	used := map[string]bool{}
	for _, id := range keep {
		m, err := s.Manifest(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Without the manifest, no job can use its files. Other manifests may list the same files.
		}
		if err != nil {
			return err
		}
		used[s.Path(id)] = true
		for _, e := range m.Entries {
			if e.Kind == tree.File {
				used[s.Path(e.Sum)], used[s.list(e.Sum)] = true, true
			}
		}
	}
	return filepath.WalkDir(s.dir, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process has removed the file since it was listed
		}
		if err != nil || ctx.Err() != nil || entry.IsDir() || used[file] {
			return errors.Join(err, ctx.Err())
		}
		info, err := entry.Info()
		if err != nil || !changeTime(info).Before(before) {
			return nil
		}
		return remove(file, info.Size())
	})
}

// cause removes "open PATH:" from a file error, because paths inside the store
// mean nothing to a user.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
