package hosts

import (
	"bytes"
	"fmt"
)

// maxAnswer bounds what a host may answer to one question, in bytes. The longest answers
// are the states of all jobs that a host keeps.
const maxAnswer = 64 << 20

// Answer keeps what a host answers. A host that answers without end gets an error after
// 64 MiB. The zero value is ready.
type Answer struct{ text bytes.Buffer }

// Write keeps p, or returns an error if the answer is too long.
func (a *Answer) Write(p []byte) (int, error) {
	if a.text.Len()+len(p) > maxAnswer {
		return 0, fmt.Errorf("it answers with more than %d MiB", maxAnswer>>20)
	}
	return a.text.Write(p)
}

func (a *Answer) String() string { return a.text.String() }
