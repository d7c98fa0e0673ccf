package cudatest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Recording is calls of kernels, for Watch.
type Recording struct {
	calls uint32
	text  bytes.Buffer
}

// Call is the launches of one operation.
type Call struct {
	Operands [][]byte // what a kernel finds in memory
	Sizes    []int    // of the operands; of one without bytes in Operands the contents are undefined
	Launches []Launch
	Results  [][]byte // what the first operands are afterwards
}

// Launch is one launch of a kernel.
type Launch struct {
	Kernel      string
	Grid, Block [3]uint32
	Pointers    []int  // operands that are the first parameters
	Scalars     []byte // the other parameters
}

func (r *Recording) numbers(all ...uint32) {
	for _, n := range all {
		r.text.Write(binary.LittleEndian.AppendUint32(nil, n)) // a buffer takes everything
	}
}

// Add records a call.
func (r *Recording) Add(c Call) {
	r.calls++
	r.numbers(uint32(len(c.Sizes)))
	for i, n := range c.Sizes {
		if c.Operands[i] == nil {
			r.numbers(uint32(n), 0)
			continue
		}
		r.numbers(uint32(n), 1)
		r.text.Write(c.Operands[i])
	}
	r.numbers(uint32(len(c.Launches)))
	for _, l := range c.Launches {
		r.numbers(uint32(len(l.Kernel)))
		r.text.WriteString(l.Kernel)
		r.numbers(l.Grid[:]...)
		r.numbers(l.Block[:]...)
		r.numbers(uint32(len(l.Pointers)))
		for _, p := range l.Pointers {
			r.numbers(uint32(p))
		}
		r.numbers(uint32(len(l.Scalars)))
		r.text.Write(l.Scalars)
	}
	r.numbers(uint32(len(c.Results)))
	for _, b := range c.Results {
		r.text.Write(b)
	}
}

// Calls is the number of recorded calls.
func (r *Recording) Calls() int { return int(r.calls) }

// Tools of valgrind that Watch runs.
const (
	Helgrind = "helgrind" // races and missing barriers
	Memcheck = "memcheck" // wrong addresses, and values that nobody has set
)

// Watch runs recorded calls under a tool of valgrind, with a thread for each CUDA
// thread. The error has what the tool complains of. The test is skipped without valgrind.
func Watch(t testing.TB, r *Recording, tool string) error {
	t.Helper()
	if _, err := exec.LookPath("valgrind"); err != nil {
		t.Skip("there is no valgrind: ", err)
	}
	file := filepath.Join(t.TempDir(), "calls")
	if err := os.WriteFile(file, append(binary.LittleEndian.AppendUint32(nil, r.calls), r.text.Bytes()...), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "valgrind", "--tool="+tool, "--error-exitcode=9", "--quiet", "--fair-sched=yes",
		filepath.Join(build(t), "replay"), file)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", tool, err, out)
	}
	return nil
}
