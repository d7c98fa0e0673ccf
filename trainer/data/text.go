package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxLine bounds one line of a text, in bytes.
const maxLine = 1 << 20

// Lines is the stream of the lines of texts in UTF-8, packed with gzip or not,
// one file after the other, without the ends of line. Each range over it opens
// the files anew and holds one line in memory. Lines of more than 1 MiB are an
// error: the file is hardly a text.
func Lines(paths ...string) Stream[string] {
	return NewStream(func(yield func(string, error) bool) {
		for _, path := range paths {
			whole := func(s *source, yield func(string) bool) error {
				l := lineReader{source: s, number: 1}
				return l.each(yield)
			}
			if !linesOf(path, whole, yield) {
				return
			}
		}
	})
}

// linesOf passes on what read gives of a file, or the error, and reports
// whether to go on.
func linesOf(path string, read func(*source, func(string) bool) error, yield func(string, error) bool) bool {
	stopped := false
	_, err := readFile(path, func(s *source) (none struct{}, err error) {
		return none, read(s, func(line string) bool {
			stopped = !yield(line, nil)
			return !stopped
		})
	})
	if err != nil && !stopped {
		yield("", err)
	}
	return err == nil && !stopped
}

// ShardLines is a data shard of the lines of one large file: those that begin
// in the piece of its bytes that Range gives. Only this piece is read. All
// shards together have each line once, but not equally many. A packed file is
// an error, it cannot be read from the middle: use ShardStream for it.
func ShardLines(path string, shard, of int) (Stream[string], error) {
	if err := checkShard(nil, shard, of); err != nil {
		return Stream[string]{}, err
	}
	all := func(yield func(string, error) bool) {
		linesOf(path, func(s *source, yield func(string) bool) error { return shardLines(s, shard, of, yield) }, yield)
	}
	return Stream[string]{all: all, shard: shard, of: of}, nil
}

func shardLines(s *source, shard, of int, yield func(string) bool) error {
	if s.size < 0 {
		return s.hinted("unpack it, or use ShardStream, which reads the whole of it on each shard",
			"a packed file, or no regular one, cannot be read from the middle")
	}
	lo, hi := Range(int(s.size), shard, of)
	if lo == hi {
		return nil
	}
	l := lineReader{source: s, end: int64(hi)}
	if lo > 0 {
		if err := l.seek(int64(lo)); err != nil {
			return err
		}
	}
	return l.each(yield)
}

// seek goes to the first line that begins at an offset above 0 or later.
func (l *lineReader) seek(offset int64) error {
	// That a line begins at the offset is told by the end of line before it.
	l.offset = offset - 1
	if _, err := l.file.Seek(l.offset, io.SeekStart); err != nil {
		return l.because(err)
	}
	l.reader.Reset(l.file)
	passed, err := l.next()
	if err != nil && err != io.EOF {
		return err
	}
	l.offset += int64(len(passed)) + 1
	return nil
}

// lineReader reads lines of a source.
type lineReader struct {
	*source
	number int   // of the next line; 0: not known, errors tell the offset
	end    int64 // lines that begin here or later are not read; 0: all are
	long   []byte
}

// byteOrderMark begins some texts in UTF-8. It is not part of the first line.
const byteOrderMark = "\ufeff"

// each passes lines on until yield refuses.
func (l *lineReader) each(yield func(string) bool) error {
	for l.end == 0 || l.offset < l.end {
		line, err := l.next()
		if err == io.EOF {
			return nil
		}
		if err == nil && !utf8.Valid(line) {
			err = l.wrong(errors.New("not a text in UTF-8"))
		}
		if err != nil {
			return err
		}
		text := bytes.TrimSuffix(line, []byte("\r"))
		if l.offset == 0 {
			text = bytes.TrimPrefix(text, []byte(byteOrderMark))
		}
		if !yield(string(text)) {
			return nil
		}
		l.offset += int64(len(line)) + 1
		if l.number > 0 {
			l.number++
		}
	}
	return nil
}

// eachLine gives every line to do, whose error names the line.
func eachLine(s *source, do func(line string) error) error {
	l := lineReader{source: s, number: 1}
	var wrong error
	err := l.each(func(line string) bool {
		wrong = do(line)
		return wrong == nil
	})
	if wrong != nil {
		return l.wrong(wrong)
	}
	return err
}

// next returns the next line without its end, valid until the next call, or
// io.EOF. The offset stays where the line begins.
func (l *lineReader) next() ([]byte, error) {
	l.long = l.long[:0]
	for {
		piece, err := l.reader.ReadSlice('\n')
		if len(l.long)+len(piece) > maxLine {
			return nil, l.wrong(fmt.Errorf("a line of more than %d bytes", maxLine))
		}
		if err == nil && len(l.long) == 0 {
			return piece[:len(piece)-1], nil
		}
		l.long = append(l.long, piece...)
		switch {
		case err == nil:
			return l.long[:len(l.long)-1], nil
		case err == io.EOF && len(l.long) > 0:
			return l.long, nil
		case err == io.EOF:
			return nil, err
		case err != bufio.ErrBufferFull:
			return nil, l.because(err)
		}
	}
}

func (l *lineReader) wrong(cause error) error {
	return &formatError{file: l.name, line: l.number, offset: l.offset, cause: cause}
}
