package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/failpoint"
	"github.com/plx-run/plx/internal/test/patience"
)

// senderVariable is an environment variable with an address. If it is set, the
// test binary sends frames to that address. The faults need a process of their
// own, because its environment selects them.
const senderVariable = "WIRE_TEST_SEND_TO"

func TestMain(m *testing.M) {
	addr := os.Getenv(senderVariable)
	if addr == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fault = failpoint.Here
	c := NewConn(conn, 3, patience.Limit)
	for step := range 3 {
		fmt.Println(c.Send(Frame{Header: Header{Kind: Push, Step: uint64(step)}, Payload: make([]byte, 100)}))
	}
	c.Close()
}

// faulty starts a sender process with the given faults. It returns the
// connection to the sender, and a function that waits for the sender and
// returns its output.
func faulty(t *testing.T, failpoints string) (net.Conn, func() string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), senderVariable+"="+ln.Addr().String(), "PLX_FAILPOINTS="+failpoints)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, func() string {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		return out.String()
	}
}

func TestSendFaultBreaksTheConnection(t *testing.T) {
	conn, said := faulty(t, "wire.send=error@2")
	got, err := io.ReadAll(conn)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
	// Data that the kernel had not delivered before the reset is lost.
	if most := 3 * (HeaderSize + 100) / 2; len(got) > most {
		t.Errorf("%d bytes came, half of the second frame makes %d", len(got), most)
	}
	if out := strings.Split(said(), "\n"); out[0] != "<nil>" || out[1] != "failpoint wire.send: an error" || out[2] == "<nil>" {
		t.Errorf("the sender was told %q", out)
	}
}

func TestCorruptFaultFlipsHeaderBits(t *testing.T) {
	conn, said := faulty(t, "wire.corrupt=error@3")
	got, err := io.ReadAll(conn)
	if err != nil || len(got) != 3*(HeaderSize+100) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for step := range 3 {
		var want [HeaderSize]byte
		Header{Kind: Push, Generation: 3, Step: uint64(step), Length: 100}.put(want[:])
		bits := 0
		for i, b := range got[step*(HeaderSize+100):][:HeaderSize] {
			for d := b ^ want[i]; d != 0; d &= d - 1 {
				bits++
			}
		}
		if wrong := bits > 0; bits > 1 || wrong != (step == 2) {
			t.Errorf("step %d: %d bits are others", step, bits)
		}
	}
	if out := said(); out != "<nil>\n<nil>\n<nil>\n" {
		t.Errorf("the sender was told %q", out)
	}
}

// The flipped bit depends on the step. Over enough steps, every bit of a
// header must be flipped once.
func TestFlipsReachEveryBit(t *testing.T) {
	seen := map[[HeaderSize]byte]bool{}
	for step := range uint64(8 * HeaderSize) {
		var zero, flipped [HeaderSize]byte
		Header{Step: step}.put(zero[:])
		flipped = zero
		flipBit(flipped[:])
		var d [HeaderSize]byte
		for i := range d {
			d[i] = zero[i] ^ flipped[i]
		}
		seen[d] = true
	}
	if len(seen) != 8*HeaderSize {
		t.Errorf("%d different bits", len(seen))
	}
}
