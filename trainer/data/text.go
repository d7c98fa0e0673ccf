package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"
)

// maxLine bounds one line of a text, in bytes.
const maxLine = 1 << 20

// Lines returns the lines of texts in UTF-8, packed with gzip or not, one file
// after the other, without line ends. Each range over it opens the files again
// and holds one line in memory. A line of more than 1 MiB is an error: the file
// is probably not a text.
func Lines(paths ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, path := range paths {
			if !linesOf(path, yield) {
				return
			}
		}
	}
}

// linesOf yields the lines of a file, or the error. It reports whether to go on.
func linesOf(path string, yield func(string, error) bool) bool {
	stopped := false
	_, err := readFile(path, func(s *source) (none struct{}, err error) {
		l := lineReader{source: s, number: 1}
		return none, l.each(func(line string) bool {
			stopped = !yield(line, nil)
			return !stopped
		})
	})
	if err != nil && !stopped {
		yield("", err)
	}
	return err == nil && !stopped
}

// lineReader reads lines of a source.
type lineReader struct {
	*source
	number int    // of the next line, counted from 1
	long   []byte // memory for a line that is longer than the reader's buffer
}

// byteOrderMark begins some texts in UTF-8. It is not part of the first line.
const byteOrderMark = "\ufeff"

// each passes lines to yield until yield returns false.
func (l *lineReader) each(yield func(string) bool) error {
	for {
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
		l.passed(int64(len(line)) + 1)
		l.number++
	}
}

// check passes every line to do. An error of do names the line.
func (l *lineReader) check(do func(line string) error) error {
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
// io.EOF. The offset stays at the beginning of the line.
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
