package fetch

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Bounds of the list of one host, in bytes.
const (
	maxList = 16 << 20 // all lines
	maxLine = 8 << 20  // a line: a checkpoint with all of its files, or an output
)

// lines decodes what is written to it, an object of JSON on each line. It keeps no more
// text than the last line.
type lines[T any] struct {
	take  func(T) error // is given each object
	rest  []byte        // beginning of a line
	total int           // bytes that were written, and number of Writes
}

func (l *lines[T]) Write(p []byte) (int, error) {
	if l.total += 1 + len(p); l.total > maxList { // an empty piece, while the host is at work, counts too
		return 0, fmt.Errorf("the list has more than %d bytes", maxList)
	}
	for rest := p; ; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		if l.rest = append(l.rest, part...); len(l.rest) > maxLine {
			return 0, fmt.Errorf("a line of the list has more than %d bytes", maxLine)
		}
		if !ended {
			return len(p), nil
		}
		if err := l.line(l.rest); err != nil {
			return 0, err
		}
		l.rest, rest = l.rest[:0], after
	}
}

func (l *lines[T]) line(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var object T
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	return l.take(object)
}

// end takes the last line, if it has no end.
func (l *lines[T]) end() error { return l.line(l.rest) }
