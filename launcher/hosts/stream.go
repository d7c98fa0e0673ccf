package hosts

import (
	"context"
	"io"
	"time"
)

// Stream is a command on a host as a byte stream: written bytes are its stdin, its
// stdout is read. If the command ended with an error, Read returns it at the end.
type Stream struct {
	in     *io.PipeWriter
	out    *io.PipeReader
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the command has ended
	ended  time.Time     // written before done is closed
}

// Stream starts a command, which runs until Close. The end of ctx does not end it.
func (h *Host) Stream(ctx context.Context, command string) *Stream {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &Stream{in: inW, out: outR, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := h.Script(ctx, command, inR, outW)
		s.ended = time.Now()
		outW.CloseWithError(err) // nil reads as io.EOF
		inR.CloseWithError(io.ErrClosedPipe)
	}()
	return s
}

func (s *Stream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *Stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// Done is closed when the command has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Alive returns when the connection was last known to be there.
func (s *Stream) Alive() time.Time {
	select {
	case <-s.done:
		return s.ended
	default:
		return time.Now()
	}
}

// Cancel gives the command up: Read returns why.
func (s *Stream) Cancel(why error) { s.cancel(why) }

// Close ends the command's stdin, closes its channel, and waits for that. What the
// command then does is up to the host: agents end. It returns nil.
func (s *Stream) Close() error {
	s.in.Close()
	s.cancel(nil)
	s.out.CloseWithError(io.ErrClosedPipe)
	<-s.done
	return nil
}

// exitTime bounds the exit of a command that has sent everything.
const exitTime = 5 * time.Second

// Finish ends the command's stdin, waits until the command has exited by itself, and
// closes the stream.
func (s *Stream) Finish() error {
	s.in.Close()
	select {
	case <-s.done:
	case <-time.After(exitTime):
	}
	return s.Close()
}
