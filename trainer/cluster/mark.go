package cluster

import (
	"bytes"
	"errors"
	"io"
)

// Mark is in every executable that links package trainer, whatever the platform and the
// linker's flags. By it the launcher knows programs that use parameter servers.
const Mark = markStart + markEnd

// plx refers to the halves only, so that its own executable does not have the mark.
const (
	markStart = "\x00plx: this program links github.com/plx-run/plx/"
	markEnd   = "trainer\x00"
)

// Marked reports whether the bytes of r contain Mark.
func Marked(r io.Reader) (bool, error) {
	mark := append([]byte(markStart), markEnd...)
	buf := make([]byte, 1<<20)
	kept := 0 // bytes at the start of buf that may be the beginning of the mark
	for {
		n, err := r.Read(buf[kept:])
		have := buf[:kept+n]
		switch {
		case bytes.Contains(have, mark):
			return true, nil
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		}
		kept = copy(buf, have[max(0, len(have)-len(mark)+1):])
	}
}
