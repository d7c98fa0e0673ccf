package hosts

import (
	"bytes"
	"fmt"
)

// maxAnswer limits the size, in bytes, of a host's reply to one request. The
// largest replies are the states of all jobs on the host.
const maxAnswer = 64 << 20

// BoundedBuffer is an io.Writer that stores a host's reply. Write fails if the reply
// exceeds 64 MiB. The zero value is ready to use.
type BoundedBuffer struct{ text bytes.Buffer }

// Write appends p to the stored reply, or returns an error if the reply is too
// long.
func (a *BoundedBuffer) Write(p []byte) (int, error) {
	if a.text.Len()+len(p) > maxAnswer {
		return 0, fmt.Errorf("its reply is longer than %d MiB", maxAnswer>>20)
	}
	return a.text.Write(p)
}

func (a *BoundedBuffer) String() string { return a.text.String() }
