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

// A large file travels in chunks. The store keeps contents whole, and beside them, in the
// folder "chunks", which chunks each large one has. So a chunk that the store has is read
// from the content that it is in. A list of chunks may be lost or outlive its content: then
// more travels.

// lists is the folder of the lists of chunks, by the content's hash.
func (s *Store) lists() string { return filepath.Join(s.dir, "chunks") }

func (s *Store) list(sum tree.Sum) string { return filepath.Join(s.lists(), sum.String()) }

// maxLists bounds the lists of chunks that are read for one folder, in bytes. With 20 bytes
// for 64 KiB the newest contents of some 200 GB are looked at.
const maxLists = 64 << 20

// lacks is what a store lacks of a manifest.
type lacks struct {
	pieces tree.Set     // that travel
	files  []tree.Entry // whose contents are to be stored, each content once
	here   map[tree.ChunkSum]place
}

// place is where a chunk is in the store.
type place struct {
	content tree.Sum
	file    string // that has the content
	offset  int64
}

// travels reports whether a piece travels.
func (l *lacks) travels() bool {
	return slices.ContainsFunc(l.pieces, func(b byte) bool { return b != 0 })
}

// Holds reports whether the store has the manifest of a name, and all its contents.
func (s *Store) Holds(id tree.Sum) bool {
	m, err := s.Manifest(id)
	return err == nil && len(s.missing(m)) == 0
}

// lacking returns what the store lacks of a manifest.
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

// find looks for chunks in the contents of the store, the newest first.
func (s *Store) find(wanted map[tree.ChunkSum]bool, here map[tree.ChunkSum]place) {
	entries, _ := os.ReadDir(s.lists()) // without lists all travels; so below
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

// findIn looks for chunks in one content.
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

// holder returns the file that has a content, or "".
func (s *Store) holder(content tree.Sum, size int64) string {
	if s.has(content, size) {
		return s.Path(content)
	}
	if s.beside == "" {
		return ""
	}
	file := filepath.Join(s.beside, content.String())
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() || info.Size() != size || !right(file, content) {
		return ""
	}
	return file
}

// assemble stores a large file of chunks that come in the stream and chunks that are here.
func (s *Store) assemble(stream io.Reader, e tree.Entry, l *lacks) error {
	var parts []io.Reader
	var from place // where the next byte of the present part is, if it is of a content
	var size int64 // of the present part
	files := map[tree.Sum]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close() // only read
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
		at := l.here[sum] // the zero place: the chunk travels
		if at != (place{}) && files[at.content] == nil {
			f, err := os.Open(at.file)
			if err != nil {
				return fmt.Errorf("a file with parts of it has vanished from %s: launch again: %w", s.dir, cause(err))
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
		for content, f := range files { // one of them is wrong, or its list: all travels the next time
			err = errors.Join(err, os.Remove(s.list(content)))
			if f.Name() == s.Path(content) && !right(f.Name(), content) {
				err = errors.Join(err, s.discard(content, nil))
			}
		}
	}
	if err == nil {
		_ = os.MkdirAll(s.lists(), 0o700) // without a list more travels
		_ = os.WriteFile(s.list(e.Sum), []byte(e.Chunks), 0o600)
	}
	return err
}

// missing returns the files whose contents the store lacks, each content once.
func (s *Store) missing(m tree.Manifest) (files []tree.Entry) {
	for _, e := range m.Contents() {
		if s.holder(e.Sum, e.Size) == "" {
			files = append(files, e)
		}
	}
	return files
}
