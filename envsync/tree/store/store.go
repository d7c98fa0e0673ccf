//go:build linux

// Package store keeps contents on a host, each under its SHA-256, and makes folders
// of them. It is the host's side of package tree:
//
//	s := store.Open("/home/u/.plx/files")
//	err := s.Serve(ctx, os.Stdin, os.Stdout, nil) // takes what tree.Send sends
//	...
//	err = s.Build(ctx, id, "/home/u/.plx/jobs/j/h/work", nil)
//
// # When a content is trusted
//
// A power cut may leave a file with its size and another content, and to flush
// thousands of files takes long. So the store flushes nothing. A file that was
// written or hashed since this host was booted is taken to be there; every other one is
// hashed first. The inode's change time tells which it is. The time of modification is
// one of 1980, so that a file that somebody wrote to is hashed too.
//
// These times do not tell all: a disk decays, and a program can set times back. So Build hashes
// what it copies. What it clones is not read, and is hashed once a day.
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

// Store is the folder of the contents.
type Store struct {
	dir    string
	beside string                // folder with more contents, see Beside; "": there are none
	last   atomic.Pointer[named] // manifest that was read last; nil: none was
}

// Beside returns the store, which lacks none of the contents that are in the folder dir under the
// hexadecimal digits of their SHA-256, and finds chunks in them.
func (s *Store) Beside(dir string) *Store {
	s.beside = dir
	return s
}

// named is a manifest of the store with its name.
type named struct {
	id tree.Sum
	tree.Manifest
}

// Open returns the store in the folder dir, which need not exist.
func Open(dir string) *Store { return &Store{dir: dir} }

// stamp is the first time of modification of contents that were found right. Each day since 1970 on
// which a content was found right is one second more.
var stamp = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// stampOf is the time of modification of a content that was found right at t.
func stampOf(t time.Time) time.Time { return stamp.Add(time.Duration(dayOf(t)) * time.Second) }

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// foundRight is the last day on which a content with a time of modification was found right; false:
// somebody has written to it. Earlier versions of plx wrote the day 0.
func foundRight(modified time.Time) (day int64, ok bool) {
	day = modified.Unix() - stamp.Unix()
	return day, 0 <= day && day <= dayOf(time.Now())+1 // clocks of hosts that share a home differ
}

// fresh is the age from which a use of a content renews its change time, by which
// Prune knows what is in use.
const fresh = time.Hour

// Path returns where a content lies.
func (s *Store) Path(sum tree.Sum) string {
	name := sum.String()
	return s.dir + "/" + name[:2] + "/" + name[2:]
}

// incoming is the folder of files that are being written.
func (s *Store) incoming() string { return filepath.Join(s.dir, "incoming") }

// has reports whether the store has a content, and that it is right as far as its times tell.
func (s *Store) has(sum tree.Sum, size int64) bool {
	file := s.Path(sum)
	var info unix.Stat_t
	err := again(func() error { return unix.Lstat(file, &info) })
	if err != nil || info.Mode&unix.S_IFMT != unix.S_IFREG || info.Size != size {
		return false
	}
	trusted, inUse := look(&info)
	if trusted && inUse {
		return true
	}
	modified := time.Unix(info.Mtim.Unix())
	if !trusted {
		if !right(file, sum) {
			return false
		}
		modified = stampOf(time.Now())
	}
	_ = os.Chtimes(file, modified, modified) // if the file system cannot, the content is hashed at its next use too
	return true
}

// look reports whether a content was written or hashed since this host was booted, and whether Prune
// sees that it is in use.
func look(info *unix.Stat_t) (trusted, inUse bool) {
	_, stamped := foundRight(time.Unix(info.Mtim.Unix()))
	changed, now := time.Unix(info.Ctim.Unix()), time.Now()
	return stamped && changed.After(bootTime()) && !changed.After(now.Add(time.Minute)), now.Sub(changed) < fresh
}

// right hashes a content.
func right(file string, sum tree.Sum) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close() // only read
	_, got, err := digest.Of(f)
	return err == nil && got == sum.String()
}

// changeTime returns when a file's inode was last changed.
func changeTime(info fs.FileInfo) time.Time {
	s := info.Sys().(*syscall.Stat_t) // as on every Linux
	return time.Unix(s.Ctim.Unix())
}

// bootTime returns when this host was booted.
var bootTime = sync.OnceValue(func() time.Time {
	text, _ := os.ReadFile("/proc/stat") // unread, it has no line to find
	return bootTimeIn(string(text))
})

// bootTimeIn finds the time in the text of /proc/stat. If it is not there it is far in the
// future, so that nothing is trusted.
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

// put writes a content of size bytes from r. Until it is complete and right it has
// another name; an error leaves nothing.
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
	found := stampOf(time.Now())
	if err := os.Chtimes(temporary, found, found); err != nil {
		return cause(err)
	}
	return s.settle(temporary, sum)
}

// putSmall writes a content that is in memory. It gets its name at once, and the stamp
// after all bytes are written: has finds nothing that was cut off. An error leaves nothing.
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
	if errors.Is(err, fs.ErrExist) { // cut off, or of another launch that writes the same
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
		found := stampOf(time.Now())
		err = os.Chtimes(file, found, found)
	}
	if err != nil {
		return errors.Join(cause(err), os.Remove(file))
	}
	return nil
}

// settle gives a content its name. The folder is made when it is needed.
func (s *Store) settle(temporary string, sum tree.Sum) error {
	err := os.Rename(temporary, s.Path(sum))
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(s.Path(sum)), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Rename(temporary, s.Path(sum))
		}
	}
	return cause(err)
}

// Manifest reads the manifest of a name, which Serve has stored. The caller must not
// change it.
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
		s.last.Store(&named{id, m})
	}
	return m, err
}

// Prune calls remove for the contents that are in no manifest of the given names and were
// not used since before.
func (s *Store) Prune(ctx context.Context, keep []tree.Sum, before time.Time, remove func(path string, size int64) error) error {
	used := map[string]bool{}
	for _, id := range keep {
		m, err := s.Manifest(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its files are gone too, or another manifest has them
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
			return nil // another prune was faster
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

// cause drops the "open PATH:" before a cause: the paths of the store tell a user
// nothing.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
