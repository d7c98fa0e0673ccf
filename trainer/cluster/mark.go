package cluster

import (
	"bytes"
	"errors"
	"io"
)

// TrainerMark is a string in every executable that links package trainer, on every
// platform and with all linker flags. The launcher searches executables for
// it, to detect programs that can use parameter servers.
const TrainerMark = markStart + markEnd

// The plx executable links this package too, but must not contain TrainerMark. So the
// code of plx uses only the two halves of the string, never TrainerMark itself.
const (
	markStart = "\x00plx: this program links github.com/plx-run/plx/"
	markEnd   = "trainer\x00"
)

// Executables built before TrainerMark existed contain a function name instead. All
// of them call trainer.Main, and the linker keeps function names for stack
// traces.
const (
	nameStart = "github.com/plx-run/plx/"
	nameEnd   = "trainer.Main"
)

// Marked reports whether r is an executable that links package trainer:
// whether it contains TrainerMark or the name of trainer.Main.
func Marked(r io.Reader) (bool, error) {
	mark, name := append([]byte(markStart), markEnd...), append([]byte(nameStart), nameEnd...)
	buf := make([]byte, 1<<20)
	kept := 0 // number of bytes at the start of buf that are kept from the previous read, because a match may begin in them
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
