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

// Recording is a list of kernel launches with their data. Watch replays them.
type Recording struct {
	calls uint32
	text  bytes.Buffer
}

// Call records the kernel launches of one operation.
type Call struct {
	Operands [][]byte // content of each operand before the launches; nil if it is undefined
	Sizes    []int    // size of each operand, in bytes
	Launches []Launch
	Results  [][]byte // expected content of the first operands after the launches
}

// Launch is one launch of a kernel.
type Launch struct {
	Kernel      string
	Grid, Block [3]uint32
	Pointers    []int  // indices in Call.Operands of the operands whose addresses are the first parameters of the kernel
	Scalars     []byte // the kernel's other parameters, encoded
}

func (r *Recording) numbers(all ...uint32) {
	for _, n := range all {
		r.text.Write(binary.LittleEndian.AppendUint32(nil, n)) // the error is nil: writes to a bytes.Buffer do not fail
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

// Valgrind tools for Watch.
const (
	Helgrind = "helgrind" // finds data races and missing barriers
	Memcheck = "memcheck" // finds invalid addresses and uninitialized values
)

// Watch replays recorded kernel launches under a valgrind tool, with one CPU
// thread for each CUDA thread. Its error contains the errors that the tool
// reports. Watch skips the test if valgrind is not installed.
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
