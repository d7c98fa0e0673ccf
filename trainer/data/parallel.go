package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Pair is a line of a text and the line with the same number in its
// translation.
type Pair struct{ Source, Target string }

// OpenParallel opens a text and its translation, whose lines correspond. It
// scans both files once to find where their lines begin, and keeps 8 bytes per
// line in memory. At reads the two lines from the files. The files stay open.
//
// A pair is corrupt if one of its lines has no word, is not UTF-8, or is
// longer than 1 MiB. OpenParallel rejects files compressed with gzip, because
// they have no random access.
func OpenParallel(source, target string) (Dataset[Pair], error) {
	s, err := openText(source)
	if err != nil {
		return nil, err
	}
	t, err := openText(target)
	if err != nil {
		return nil, err
	}
	if len(s.ends) != len(t.ends) {
		return nil, fmt.Errorf("%s has %d lines, %s has %d: line by line they do not belong together", source, len(s.ends), target, len(t.ends))
	}
	return parallel{s, t}, nil
}

type parallel struct{ source, target *textFile }

func (p parallel) Len() int { return len(p.source.ends) }

func (p parallel) Describe() string {
	return fmt.Sprintf("%d pairs of lines, checksums %08x and %08x", p.Len(), p.source.sum, p.target.sum)
}

func (p parallel) At(i int) (pair Pair, err error) {
	if err := checkIndex(i, p.Len()); err != nil {
		return pair, err
	}
	if pair.Source, err = p.source.line(i); err != nil {
		return pair, err
	}
	pair.Target, err = p.target.line(i)
	return pair, err
}

// textFile is an open text file with an index of its lines.
type textFile struct {
	path string
	file io.ReaderAt
	ends []int64 // for each line, the file offset after its last byte
	sum  uint32
}

func openText(path string) (*textFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	t := &textFile{path: path, file: file}
	if err := t.scan(file); err != nil {
		file.Close() // the error is ignored: no data can be lost in a file opened for reading
		return nil, err
	}
	return t, nil
}

// scan reads the whole text and fills in t.ends and t.sum.
func (t *textFile) scan(from io.Reader) error {
	r, at := bufio.NewReaderSize(from, 1<<18), int64(0)
	if magic, _ := r.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return hintedError{fmt.Errorf("%s: the text is packed with gzip, which has no random access", t.path), "unpack it first"}
	}
	for inside := false; ; { // inside is true if some bytes of the current line were read, but not the line's end
		piece, err := r.ReadSlice('\n') // ReadSlice returns a line that is longer than the buffer in several pieces
		at += int64(len(piece))
		t.sum = crc32.Update(t.sum, castagnoli, piece)
		inside = inside || len(piece) > 0
		if inside && (err == nil || err == io.EOF) {
			t.ends, inside = append(t.ends, at), false
		}
		switch err {
		case nil, bufio.ErrBufferFull:
		case io.EOF:
			return t.notEmpty()
		default:
			return fmt.Errorf("line %d: %w", len(t.ends)+1, err)
		}
	}
}

func (t *textFile) notEmpty() error {
	if len(t.ends) == 0 {
		return fmt.Errorf("%s: the text is empty", t.path)
	}
	return nil
}

// line reads the line with index i from the file; the first line has index 0.
func (t *textFile) line(i int) (string, error) {
	begin := int64(0)
	if i > 0 {
		begin = t.ends[i-1]
	}
	wrong := func(err error) (string, error) { return "", &formatError{file: t.path, line: i + 1, cause: err} }
	if n := t.ends[i] - begin; n > maxLine {
		return wrong(fmt.Errorf("a line of %d bytes, at most %d are read", n, maxLine))
	}
	b := make([]byte, t.ends[i]-begin)
	if _, err := t.file.ReadAt(b, begin); err == io.EOF {
		return wrong(errors.New("truncated: the file has become shorter"))
	} else if err != nil {
		return "", fmt.Errorf("line %d: %w", i+1, err)
	}
	if i == 0 {
		b = bytes.TrimPrefix(b, []byte(byteOrderMark))
	}
	line := strings.TrimRight(string(b), "\r\n")
	switch {
	case !utf8.ValidString(line):
		return wrong(errors.New("not a text in UTF-8"))
	case strings.TrimSpace(line) == "":
		return wrong(errors.New("the line has no word"))
	}
	return line, nil
}
