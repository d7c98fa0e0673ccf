//go:build linux

package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/bounded"
)

// A large file is sent in chunks. The store keeps each content as one file. A
// second file, in the folder "chunks", lists the content's chunks. So the
// store can read a chunk that it needs from any content that contains the
// chunk. A list may be missing, or may remain after its content was removed.
// The only effect is that the host has to receive more chunks.

// lists returns the folder of the files that list the chunks of a content.
// Each file is named by the content's SHA-256.
func (s *Store) lists() string { return filepath.Join(s.dir, "chunks") }

func (s *Store) list(sum tree.Sum) string { return filepath.Join(s.lists(), sum.String()) }

// maxLists is the maximum number of bytes of chunk lists that the store reads
// to find the chunks of one folder. A list has 20 bytes per chunk of 64 KiB,
// so these lists cover about 200 GB of the newest contents.
const maxLists = 64 << 20

// lacks describes which file contents of a manifest (list of files) the store
// lacks, and which of their chunks it can take from other contents that it
// has.
type lacks struct {
	pieces tree.Set     // pieces that the sender must send
	files  []tree.Entry // files whose content is not stored, one file for each content
	here   map[tree.ChunkSum]place
}

// place is where a chunk of a file can be read: a stored file and an offset in
// that file.
type place struct {
	content tree.Sum
	file    string // path of the file that has this content
	offset  int64
}

// travels reports whether the sender must send at least one piece.
func (l *lacks) travels() bool {
	return slices.ContainsFunc(l.pieces, func(b byte) bool { return b != 0 })
}

// Contains reports whether the store has the manifest (list of files) with
// this ID and the contents of all its files.
func (s *Store) Contains(id tree.Sum) bool {
	m, err := s.Manifest(id)
	return err == nil && len(s.missing(m)) == 0
}

// lacking returns which contents and chunks of the manifest m (a list of
// files) the store does not have.
func (s *Store) lacking(m tree.Manifest) *lacks {
	l := &lacks{pieces: tree.NewSet(m), files: s.missing(m), here: map[tree.ChunkSum]place{}}
	wanted, missing := map[tree.ChunkSum]bool{}, make(map[string]bool, len(l.files))
	for _, e := range l.files {
		missing[e.Path] = true
		for sum := range e.Chunks.All() {
			wanted[sum] = true
		}
	}
	if len(wanted) > 0 {
		s.find(wanted, l.here)
	}
	for i, p := range m.Pieces() {
		if _, found := l.here[p.Chunk]; missing[p.Path] && (p.Chunks == "" || !found) {
			l.pieces.Add(i)
		}
	}
	return l
}

// find searches the stored contents for the wanted chunks, newest content
// first. It adds the places of the chunks that it finds to the map here.
func (s *Store) find(wanted map[tree.ChunkSum]bool, here map[tree.ChunkSum]place) {
	entries, _ := os.ReadDir(s.lists()) // on an error the store finds no chunk, so the sender sends all chunks
	var lists []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			lists = append(lists, info)
		}
	}
	slices.SortFunc(lists, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	left := int64(maxLists)
	for _, info := range lists {
		if left -= info.Size(); left < 0 || len(here) == len(wanted) {
			return
		}
		content, err := tree.ParseSum(info.Name())
		if err != nil {
			continue
		}
		if text, err := bounded.ReadFile(s.list(content), maxLists); err == nil {
			s.findIn(content, tree.Chunks(text), wanted, here)
		}
	}
}

// findIn searches the chunks of one stored content for wanted chunks. It adds
// the places of the chunks that it finds to the map here.
func (s *Store) findIn(content tree.Sum, chunks tree.Chunks, wanted map[tree.ChunkSum]bool, here map[tree.ChunkSum]place) {
	found, offset := map[tree.ChunkSum]int64{}, int64(0)
	for sum, n := range chunks.All() {
		if _, known := here[sum]; wanted[sum] && !known {
			found[sum] = offset
		}
		offset += n
	}
	if len(found) == 0 {
		return
	}
	if file := s.holder(content, offset); file != "" {
		for sum, offset := range found {
			here[sum] = place{content, file, offset}
		}
	}
}

// holder returns the path of an intact file with this content, in the store or
// in the folder of WithExtraContents. It returns "" if there is no such file.
func (s *Store) holder(content tree.Sum, size int64) string {
	if s.has(content, size) {
		return s.Path(content)
	}
	if s.beside == "" {
		return ""
	}
	file := filepath.Join(s.beside, content.String())
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() || info.Size() != size || !verify(file, content) {
		return ""
	}
	return file
}

// assemble stores a large file. It takes each chunk either from a content that
// the store has or, if l.here does not list the chunk, from the stream.
func (s *Store) assemble(stream io.Reader, e tree.Entry, l *lacks) error {
	var parts []io.Reader
	var from place // end of the current part in a stored file; zero if the part is read from the stream
	var size int64 // length in bytes of the current part, which grows by one chunk at a time
	files := map[tree.Sum]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close() // opened for reading: an error of Close does not matter
		}
	}()
	end := func() {
		if f := files[from.content]; f != nil {
			parts = append(parts, io.NewSectionReader(f, from.offset-size, size))
		} else {
			parts = append(parts, io.LimitReader(stream, size))
		}
		size = 0
	}
	for sum, n := range e.Chunks.All() {
		at := l.here[sum] // zero if the chunk must be read from the stream
		if at != (place{}) && files[at.content] == nil {
			f, err := os.Open(at.file)
			if err != nil {
				return fmt.Errorf("a stored file that contains parts of it was removed from %s: launch again: %w", s.dir, cause(err))
			}
			files[at.content] = f
		}
		if size > 0 && at != from {
			end()
		}
		if from = at; at != (place{}) {
			from.offset += n
		}
		size += n
	}
	end()
	err := s.put(io.MultiReader(parts...), e.Sum, e.Size)
	if errors.Is(err, errDamaged) && len(files) > 0 {
		err = &tree.DamagedError{Dir: s.dir, Files: []string{e.Path}}
		// One of the contents in files, or its list of chunks, is wrong.
		// Remove the lists, so that the sender sends all chunks next time.
		for content, f := range files {
			err = errors.Join(err, os.Remove(s.list(content)))
			if f.Name() == s.Path(content) && !verify(f.Name(), content) {
				err = errors.Join(err, s.discard(content, nil))
			}
		}
	}
	if err == nil {
		_ = os.MkdirAll(s.lists(), 0o700) // on an error, files that are sent later can take fewer chunks from the store
		_ = os.WriteFile(s.list(e.Sum), []byte(e.Chunks), 0o600)
	}
	return err
}

// missing returns the files of m whose content the store does not have. Of
// files with equal content it returns one.
func (s *Store) missing(m tree.Manifest) (files []tree.Entry) {
	for _, e := range m.Contents() {
		if s.holder(e.Sum, e.Size) == "" {
			files = append(files, e)
		}
	}
	return files
}
