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

// Programs that were built before there was a mark have the name of a function that
// all of them call. The linker keeps the names of functions for stack traces.
const (
	nameStart = "github.com/plx-run/plx/"
	nameEnd   = "trainer.Main"
)

// Marked reports whether the bytes of r are those of an executable that links package
// trainer.
func Marked(r io.Reader) (bool, error) {
	mark, name := append([]byte(markStart), markEnd...), append([]byte(nameStart), nameEnd...)
	buf := make([]byte, 1<<20)
	kept := 0 // bytes at the start of buf that may be the beginning of a mark, the longer of the two
	for {
		n, err := r.Read(buf[kept:])
		have := buf[:kept+n]
		switch {
		case bytes.Contains(have, mark), bytes.Contains(have, name):
			return true, nil
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		}
		kept = copy(buf, have[max(0, len(have)-len(mark)+1):])
	}
}
