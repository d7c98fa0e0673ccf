package transporttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/transport"
)

// testStream checks that bytes arrive unchanged, in any amount and at any
// speed.
func testStream(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := opened(t, open)
	t.Run("binary", func(t *testing.T) {
		sent := noise(1, 300000)
		var stdout, stderr bytes.Buffer
		err := conn.Run(t.Context(), "cat; echo done >&2", bytes.NewReader(sent), &stdout, &stderr)
		checkStatus(t, err, 0)
		if !bytes.Equal(stdout.Bytes(), sent) || stderr.String() != "done\n" {
			t.Errorf("%d bytes came back of %d, or others; stderr %q", stdout.Len(), len(sent), stderr.String())
		}
	})
	t.Run("5 MB", func(t *testing.T) { testLarge(t, conn) })
	t.Run("stdin unread", func(t *testing.T) {
		err := conn.Run(t.Context(), "exit 7", bytes.NewReader(make([]byte, 4<<20)), nil, nil)
		checkStatus(t, err, 7)
	})
	t.Run("stdin blocks", func(t *testing.T) {
		blocked, end := io.Pipe()
		defer func() { _ = end.Close() }()
		within(t, "a command that does not read its stdin", func() {
			checkStatus(t, conn.Run(t.Context(), "exit 5", struct{ io.Reader }{blocked}, nil, nil), 5)
		})
	})
	t.Run("stdin is a pipe", func(t *testing.T) {
		stdin, end := io.Pipe()
		within(t, "who writes to a command that has ended", func() {
			checkStatus(t, conn.Run(t.Context(), "exit 5", stdin, nil, nil), 5)
			if _, err := end.Write([]byte("a")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("wrote to a command that has ended: %v", err)
			}
		})
	})
	t.Run("stdin fails", func(t *testing.T) {
		broken := errors.New("broken")
		within(t, "the end of a run whose stdin broke", func() {
			err := conn.Run(t.Context(), "cat", io.MultiReader(bytes.NewReader([]byte("a")), failing{broken}), nil, nil)
			if !errors.Is(err, broken) {
				t.Errorf("run: %v, want %v", err, broken)
			}
		})
	})
	t.Run("stdout fails", func(t *testing.T) {
		broken := errors.New("broken")
		within(t, "the end of a run whose stdout broke", func() {
			err := conn.Run(t.Context(), "echo a; exec cat /dev/zero", nil, failing{broken}, nil)
			if !errors.Is(err, broken) {
				t.Errorf("run: %v, want %v", err, broken)
			}
		})
	})
	t.Run("dialogue", func(t *testing.T) { testDialogue(t, conn) })
	t.Run("slow reader", func(t *testing.T) { testSlowReader(t, conn) })
}

// testLarge sends more than twice SSH's flow control window of 2 MiB.
func testLarge(t *testing.T, conn transport.Transport) {
	sent := noise(2, 5_000_000)
	got := sha256.New()
	err := conn.Run(t.Context(), "cat", bytes.NewReader(sent), got, nil)
	checkStatus(t, err, 0)
	if want := sha256.Sum256(sent); !bytes.Equal(got.Sum(nil), want[:]) {
		t.Error("other bytes came back")
	}
}

// testDialogue checks that each line arrives before the next one is sent.
func testDialogue(t *testing.T, conn transport.Transport) {
	in, toHost := io.Pipe()
	fromHost, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := conn.Run(t.Context(), "while read -r line; do echo \"got $line\"; done", in, out, nil)
		_ = out.Close() // Close of a pipe never returns an error
		ended <- err
	}()
	within(t, "the dialogue", func() {
		for i := range 5 {
			fmt.Fprintf(toHost, "%d\n", i) // the error is ignored: if this line is lost, the reply does not arrive and the test fails
			answer := make([]byte, len("got 0\n"))
			if _, err := io.ReadFull(fromHost, answer); err != nil || string(answer) != fmt.Sprintf("got %d\n", i) {
				t.Errorf("answer %q, %v", answer, err)
			}
		}
		_ = toHost.Close() // Close of a pipe never returns an error
		checkStatus(t, <-ended, 0)
	})
}

// testSlowReader leaves the output of one command unread, and checks that
// another command still runs on the same connection.
func testSlowReader(t *testing.T, conn transport.Transport) {
	gate := &gated{open: make(chan struct{}), reached: make(chan struct{})}
	const size = 4 << 20
	ended := make(chan error, 1)
	go func() {
		ended <- conn.Run(t.Context(), fmt.Sprintf("head -c %d /dev/zero", size), nil, gate, nil)
	}()
	within(t, "the first output", func() { <-gate.reached })
	within(t, "a command beside a stalled one", func() {
		var stdout bytes.Buffer
		checkStatus(t, conn.Run(t.Context(), "echo alive", nil, &stdout, nil), 0)
		if stdout.String() != "alive\n" {
			t.Errorf("stdout %q", stdout.String())
		}
	})
	close(gate.open)
	within(t, "the stalled command", func() { checkStatus(t, <-ended, 0) })
	if gate.count != size {
		t.Errorf("%d bytes arrived, want %d", gate.count, size)
	}
}

// gated is a writer that blocks until open is closed.
type gated struct {
	open, reached chan struct{}
	count         int
}

func (g *gated) Write(p []byte) (int, error) {
	if g.count == 0 {
		close(g.reached)
	}
	g.count += len(p)
	<-g.open
	return len(p), nil
}

// failing is a reader and writer whose calls all fail.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// noise returns n bytes that cannot be compressed. They depend only on seed
// and n.
func noise(seed byte, n int) []byte {
	data := make([]byte, n)
	source := rand.NewChaCha8([32]byte{seed})
	_, _ = source.Read(data) // Read of this source never returns an error
	return data
}

// started is a writer that closes a channel when the first byte arrives.
type started struct {
	bytes.Buffer
	first chan struct{}
}

func newStarted() *started { return &started{first: make(chan struct{})} }

func (s *started) Write(p []byte) (int, error) {
	if s.Len() == 0 && len(p) > 0 {
		defer close(s.first)
	}
	return s.Buffer.Write(p)
}

// testEnd checks how a command ends if it is canceled, times out, or leaves a
// process behind.
func testEnd(t *testing.T, open func(*testing.T) transport.Transport) {
	t.Run("cancel", func(t *testing.T) {
		conn := opened(t, open)
		ctx, cancel := context.WithCancel(t.Context())
		output, ended := newStarted(), make(chan error, 1)
		// The command ends when its standard input ends, so that no process is
		// left.
		go func() { ended <- conn.Run(ctx, "echo started; cat >/dev/null", neverEnds(t), output, nil) }()
		within(t, "the start", func() { <-output.first })
		cancel()
		within(t, "the return after cancel", func() {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("run: %v, want %v", err, context.Canceled)
			}
		})
		checkStatus(t, conn.Run(t.Context(), "true", nil, nil, nil), 0)
	})
	t.Run("deadline", func(t *testing.T) {
		conn := opened(t, open)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := conn.Run(ctx, "cat", neverEnds(t), nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("run: %v, want %v", err, context.DeadlineExceeded)
		}
	})
	t.Run("output held open", func(t *testing.T) {
		conn := opened(t, open)
		var stdout bytes.Buffer
		within(t, "a command that left its output to another", func() {
			checkStatus(t, conn.Run(t.Context(), "sleep 600 & echo $!; exit 3", nil, &stdout, nil), 3)
		})
		checkStatus(t, conn.Run(t.Context(), "kill "+stdout.String(), nil, nil, nil), 0)
	})
	t.Run("close", func(t *testing.T) { testClose(t, open) })
}

func testClose(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := open(t)
	output, ended := newStarted(), make(chan error, 1)
	go func() { ended <- conn.Run(t.Context(), "echo started; cat", neverEnds(t), output, nil) }()
	within(t, "the start", func() { <-output.first })
	within(t, "close, twice at once and once more", func() {
		again := make(chan error, 1)
		go func() { again <- conn.Close() }()
		first, second := conn.Close(), <-again
		if third := conn.Close(); first != nil || second != nil || third != nil {
			t.Errorf("close: %v, %v, %v", first, second, third)
		}
	})
	within(t, "the return of what was outstanding", func() {
		checkLost(t, "run across close", <-ended)
	})
	checkLost(t, "run after close", conn.Run(t.Context(), "true", nil, nil, nil))
	checkLost(t, "copy after close", conn.Copy(t.Context(), bytes.NewReader(nil), t.TempDir()+"/f"))
}

// checkLost fails the test unless err is a LostError, which means that the
// connection is lost.
func checkLost(t *testing.T, what string, err error) {
	t.Helper()
	if !transport.IsLost(err) {
		t.Errorf("%s: %v, want a LostError", what, err)
	}
}

// neverEnds returns a reader that blocks until the end of the test.
func neverEnds(t *testing.T) io.Reader {
	reader, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() }) // Close of a pipe never returns an error
	return reader
}
