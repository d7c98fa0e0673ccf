package tree

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"strings"
	"unicode"
)

// Sum is the SHA-256 of a file's content.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// ParseSum converts the hexadecimal digits that Sum.String returns to a Sum.
func ParseSum(text string) (s Sum, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || copy(s[:], raw) != len(s) || len(raw) != len(s) {
		return s, fmt.Errorf("%.80q is not a content hash", text)
	}
	return s, nil
}

// Kind is the type of an entry of a folder: a folder, a file or a symbolic
// link.
type Kind byte

// The values of Kind are part of the encoded manifest and must not change.
const (
	Directory Kind = 'd'
	File      Kind = 'f'
	Link      Kind = 'l'
	Outside   Kind = 'o' // a symbolic link that points out of the folder and is sent unchanged because Options.KeepLinks is set
)

// IsLink reports whether the entry is a symbolic link, in the folder (Link) or
// out of it (Outside).
func (k Kind) IsLink() bool { return k == Link || k == Outside }

// Entry is one file, folder or symbolic link in a folder described by a
// manifest.
type Entry struct {
	Path   string // relative to the manifest's folder, slash-separated, as path.Clean returns it
	Kind   Kind
	Mode   fs.FileMode // permission bits; 0 for a symbolic link
	Size   int64       // length of a file in bytes; 0 for a folder or link
	Sum    Sum         // SHA-256 of a file's content; zero for a folder or link
	Target string      // target of a symbolic link; empty for a file or folder
	Chunks Chunks      // chunks of a file of 1 MiB or more; empty for other entries
}

// chunked is the byte in an encoded manifest that marks a file entry followed
// by its list of chunks.
const chunked = 'c'

// Manifest describes the content of a folder. Entries are sorted by path, and
// a folder precedes its contents.
type Manifest struct{ Entries []Entry }

// Limits of a manifest. Data beyond these limits belongs on a file system that
// the hosts share, not in the working directory of a job.
const (
	maxEntries  = 1 << 20
	maxFile     = 1 << 42 // maximum size of one file in bytes
	maxName     = 4096    // maximum length in bytes of a path or of a link's target
	MaxManifest = 1 << 28 // maximum size in bytes of an encoded manifest
)

// magic is the prefix of every encoded manifest; it contains the version of
// the format.
const magic = "plx tree 1\n"

// Encode returns the manifest in its binary format. Equal folders have equal
// encodings.
func (m Manifest) Encode() []byte {
	b := []byte(magic)
	for _, e := range m.Entries {
		kind := byte(e.Kind)
		if e.Chunks != "" {
			kind = chunked
		}
		b = append(b, kind)
		b = appendText(b, e.Path)
		switch e.Kind {
		case Link, Outside:
			b = appendText(b, e.Target)
		case File:
			b = binary.AppendUvarint(b, uint64(e.Mode.Perm()))
			b = binary.AppendUvarint(b, uint64(e.Size))
			b = append(b, e.Sum[:]...)
			if e.Chunks != "" {
				b = append(binary.AppendUvarint(b, uint64(e.Chunks.Len())), e.Chunks...)
			}
		default:
			b = binary.AppendUvarint(b, uint64(e.Mode.Perm()))
		}
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// ID returns the identifier of a manifest: the SHA-256 of its encoding.
func (m Manifest) ID() Sum { return sha256.Sum256(m.Encode()) }

// Files returns the number of files in the manifest and the sum of their sizes
// in bytes.
func (m Manifest) Files() (n int, size int64) {
	for _, e := range m.Entries {
		if e.Kind == File {
			n, size = n+1, size+e.Size
		}
	}
	return n, size
}

// Decode parses the output of Encode. It rejects a manifest with a path or
// link that leads out of the folder, and any other input that Encode cannot
// have produced.
func Decode(b []byte) (m Manifest, err error) {
	if len(b) > MaxManifest || !bytes.HasPrefix(b, []byte(magic)) {
		return m, errors.New("it is not a list of files that this version of plx can read")
	}
	d := decoder{rest: b[len(magic):]}
	c := checker{folders: map[string]bool{".": true}}
	for len(d.rest) > 0 {
		e := d.entry()
		if d.err == nil {
			d.err = c.check(e)
		}
		if d.err != nil {
			return Manifest{}, fmt.Errorf("damaged list of files: entry %d: %w", len(m.Entries)+1, d.err)
		}
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}

// Write writes the length of the encoded manifest, then the encoded manifest.
// ReadManifest reads both.
func (m Manifest) Write(w io.Writer) error {
	text := m.Encode()
	if _, err := w.Write(binary.AppendUvarint(nil, uint64(len(text)))); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// ReadManifest reads the output of Write from r. It does not read any byte
// after that output.
func ReadManifest(r *bufio.Reader) (Manifest, error) {
	size, err := binary.ReadUvarint(r)
	if err == nil && size > MaxManifest {
		err = fmt.Errorf("it has %d bytes", size)
	}
	var text bytes.Buffer // text grows as data arrives, so a wrong length in the input allocates no memory.
	if err == nil {
		_, err = io.CopyN(&text, r, int64(size))
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("read the list of files: %w", err)
	}
	return Decode(text.Bytes())
}

// Contents returns one file entry for each distinct content: the first entry
// with that SHA-256.
func (m Manifest) Contents() (files []Entry) {
	seen := make(map[Sum]bool, len(m.Entries))
	for _, e := range m.Entries {
		if e.Kind == File && !seen[e.Sum] {
			seen[e.Sum] = true
			files = append(files, e)
		}
	}
	return files
}

// decoder parses the entries of an encoded manifest. After an error all its
// methods return zero values.
type decoder struct {
	rest []byte
	err  error // the first parse error, or nil if there was none so far
}

func (d *decoder) entry() (e Entry) {
	kind := d.take(1)
	e.Path = d.text()
	if d.err != nil {
		return e
	}
	switch e.Kind = Kind(kind[0]); e.Kind {
	case Link, Outside:
		e.Target = d.text()
	case File, chunked:
		e.Kind = File
		e.Mode = fs.FileMode(d.number(uint64(fs.ModePerm)))
		e.Size = int64(d.number(maxFile))
		copy(e.Sum[:], d.take(len(e.Sum)))
		if kind[0] == chunked {
			d.chunks(&e)
		}
	case Directory:
		e.Mode = fs.FileMode(d.number(uint64(fs.ModePerm)))
	default:
		d.fail("it is of an unknown kind")
	}
	return e
}

// chunks parses the list of chunks of a file into e.Chunks.
func (d *decoder) chunks(e *Entry) {
	n := d.number(MaxManifest / uint64(chunkSize))
	if e.Chunks = Chunks(d.take(int(n) * chunkSize)); d.err != nil {
		return
	}
	if d.err = e.Chunks.check(e.Size); d.err == nil && n == 0 {
		d.fail("it has no chunks")
	}
}

func (d *decoder) fail(text string) {
	if d.err == nil {
		d.err = errors.New(text)
	}
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail("it is cut off")
	}
	if d.err != nil {
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

// number parses a varint. It rejects a value greater than most, and an
// encoding that is longer than necessary.
func (d *decoder) number(most uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > most || n != len(binary.AppendUvarint(nil, v)) {
		d.fail("a number is out of range")
		return 0
	}
	d.take(n)
	return v
}

func (d *decoder) text() string { return string(d.take(int(d.number(maxName)))) }

// checker validates the entries of a manifest. The caller must call the method
// check for each entry in order.
type checker struct {
	folders map[string]bool // paths of all folders checked so far
	last    string          // path of the previous entry; "" before the first one
	entries int
	size    int64 // total size in bytes of all files checked so far
}

func (c *checker) check(e Entry) error {
	if err := checkPath(e.Path); err != nil {
		return err
	}
	if e.Path <= c.last {
		return errors.New("it is not in order")
	}
	if !c.folders[path.Dir(e.Path)] {
		return errors.New("its folder is not listed")
	}
	if c.entries++; c.entries > maxEntries {
		return fmt.Errorf("more than %d files", maxEntries)
	}
	if e.Size > math.MaxInt64-c.size {
		return errors.New("the files are too large")
	}
	c.size += e.Size
	c.last = e.Path
	switch e.Kind {
	case Directory:
		c.folders[e.Path] = true
	case Link:
		return checkTarget(e.Path, e.Target)
	case Outside:
		if e.Target == "" {
			return errors.New("it is a link to nothing")
		}
		return checkName(e.Target)
	}
	return nil
}

// checkPath returns an error unless p is a clean relative path that stays in
// the folder. It also rejects control characters, because they would break
// one-line messages that show the path.
func checkPath(p string) error {
	switch {
	case len(p) > maxName:
		return errors.New("its name is too long")
	case p == "." || p != path.Clean(p) || !filepath.IsLocal(filepath.FromSlash(p)):
		return errors.New("its name leads out of the folder")
	case strings.ContainsFunc(p, unicode.IsControl):
		return errors.New("its name has a line feed or another control character")
	}
	return nil
}

// checkTarget returns an error unless the symbolic link at path p certainly
// points into the folder.
func checkTarget(p, target string) error {
	if err := checkName(target); err != nil {
		return err
	}
	if !staysInside(p, target) {
		return fmt.Errorf("the link to %q %w", target, errLeadsOut)
	}
	return nil
}

// checkName rejects a link target that is too long or has control characters.
func checkName(target string) error {
	if len(target) > maxName || strings.ContainsFunc(target, unicode.IsControl) {
		return errors.New("its target is too long or contains a control character")
	}
	return nil
}

// staysInside reports whether the symbolic link at the path link, relative to
// a folder, points into that folder. It accepts ".." only at the beginning of
// target, because the meaning of "a/.." depends on whether a is itself a link.
// Therefore accepted links stay inside the folder even if one leads through
// another.
func staysInside(link, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	depth, down := strings.Count(path.Clean(link), "/"), false
	for word := range strings.SplitSeq(target, "/") {
		switch word {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}
