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

// Sum is the SHA-256 of a content.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// ParseSum reads what String wrote.
func ParseSum(text string) (s Sum, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || copy(s[:], raw) != len(s) || len(raw) != len(s) {
		return s, fmt.Errorf("%.80q is not a content hash", text)
	}
	return s, nil
}

// Kind is what an entry of a folder is.
type Kind byte

// The kinds. Their values are part of the manifest's format.
const (
	Directory Kind = 'd'
	File      Kind = 'f'
	Link      Kind = 'l'
	Outside   Kind = 'o' // a link that leads out of the folder, which the user wants as it is
)

// IsLink reports whether an entry is a link, wherever it leads.
func (k Kind) IsLink() bool { return k == Link || k == Outside }

// Entry is one file, folder or link below the folder of a manifest.
type Entry struct {
	Path   string // relative, with slashes, clean
	Kind   Kind
	Mode   fs.FileMode // permission bits; zero for a link
	Size   int64       // length of a file in bytes; zero for others
	Sum    Sum         // of a file's content; zero for others
	Target string      // what a link points to; empty for others
	Chunks Chunks      // of a large file; empty for others
}

// chunked is the kind in the manifest of a file with chunks.
const chunked = 'c'

// Manifest is the content of a folder. Entries are in the order of their paths,
// and a folder comes before what is in it.
type Manifest struct{ Entries []Entry }

// Bounds of a manifest. Files that are more belong on a file system that the hosts
// share, not into the working directory of a job.
const (
	maxEntries  = 1 << 20
	maxFile     = 1 << 42 // bytes of one file
	maxName     = 4096    // bytes of a path or of a link's target
	MaxManifest = 1 << 28 // bytes of an encoded manifest
)

// magic begins an encoded manifest, and names the version of its format.
const magic = "plx tree 1\n"

// Encode writes a manifest. Equal folders give equal bytes.
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

// ID names a manifest: the SHA-256 of its encoding.
func (m Manifest) ID() Sum { return sha256.Sum256(m.Encode()) }

// Files returns the number of files, and of their bytes.
func (m Manifest) Files() (n int, size int64) {
	for _, e := range m.Entries {
		if e.Kind == File {
			n, size = n+1, size+e.Size
		}
	}
	return n, size
}

// Decode reads what Encode wrote. It refuses a manifest with which Build would
// leave its folder, or that Encode would write otherwise.
func Decode(b []byte) (m Manifest, err error) {
	if len(b) > MaxManifest || !bytes.HasPrefix(b, []byte(magic)) {
		return m, errors.New("it is no list of files of this version of plx")
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

// Write writes the manifest with its length, for ReadManifest.
func (m Manifest) Write(w io.Writer) error {
	text := m.Encode()
	if _, err := w.Write(binary.AppendUvarint(nil, uint64(len(text)))); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// ReadManifest reads what Write wrote, and nothing after it.
func ReadManifest(r *bufio.Reader) (Manifest, error) {
	size, err := binary.ReadUvarint(r)
	if err == nil && size > MaxManifest {
		err = fmt.Errorf("it has %d bytes", size)
	}
	var text bytes.Buffer // grows with what arrives
	if err == nil {
		_, err = io.CopyN(&text, r, int64(size))
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("read the list of files: %w", err)
	}
	return Decode(text.Bytes())
}

// Contents returns a file for each content, the first one that has it.
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

// decoder reads entries. After an error it returns zero values.
type decoder struct {
	rest []byte
	err  error // the first error; nil: none
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

// chunks reads the chunks of a file.
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

// number reads a number up to most, in its only form.
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

// checker checks entries in their order.
type checker struct {
	folders map[string]bool // folders so far, by path
	last    string          // path of the entry before
	entries int
	size    int64 // bytes of all files so far
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

// checkPath refuses what is not the path of something in a folder, and names
// that would break a line of text.
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

// checkTarget refuses a link that leads out of the folder.
func checkTarget(p, target string) error {
	if err := checkName(target); err != nil {
		return err
	}
	if !staysInside(p, target) {
		return fmt.Errorf("the link to %q %w", target, errLeadsOut)
	}
	return nil
}

// checkName refuses what no link can point to, or no message can show.
func checkName(target string) error {
	if len(target) > maxName || strings.ContainsFunc(target, unicode.IsControl) {
		return errors.New("what it points to has no valid name")
	}
	return nil
}

// staysInside says whether a link at the path link, relative to a folder,
// points into that folder. After its first words ".." it may have no other:
// what "a/.." means depends on whether a is a link itself. So it holds for any
// set of such links in folders that are none.
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
