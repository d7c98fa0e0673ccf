package fanout

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	maxFrame       = 256 << 10 // maximum number of data bytes in a frame
	heartbeat      = ^uint32(0)
	heartbeatEvery = 5 * time.Second // interval between heartbeats of a sender that has no data to send
	// ioTimeout is the timeout of one read or write on a connection between
	// hosts. It equals four heartbeat intervals.
	ioTimeout = 20 * time.Second
)

// frames is a writer that splits what is written to it into length-prefixed
// frames and writes those to w.
type frames struct {
	w   io.Writer
	buf []byte
}

func newFrames(w io.Writer) *frames { return &frames{w: w, buf: make([]byte, 4+maxFrame)} }

// Write writes b to the connection as frames of at most maxFrame bytes.
func (f *frames) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := copy(f.buf[4:], b)
		binary.LittleEndian.PutUint32(f.buf, uint32(part))
		if _, err := f.w.Write(f.buf[:4+part]); err != nil {
			return n, err
		}
		n, b = n+part, b[part:]
	}
	return n, nil
}

// writeLength writes a frame that consists of a length only: 0 (end of the
// stream) or the constant heartbeat.
func (f *frames) writeLength(length uint32) error {
	_, err := f.w.Write(binary.LittleEndian.AppendUint32(nil, length))
	return err
}

// errOutput marks an error of the receiver's own output, such as a full disk.
// It distinguishes such an error from an error of the connection, after which
// the receiver asks the sender for the remaining stream.
var errOutput = errors.New("write the received data")

// readFrames reads frames from r until the end of the stream and writes their
// content to w. After each frame it calls live with the frame's length in
// bytes; a heartbeat has length 0.
func readFrames(r *bufio.Reader, w io.Writer, live func(n int) error) error {
	var length [4]byte
	buf := make([]byte, maxFrame)
	for {
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return unexpected(err)
		}
		n := binary.LittleEndian.Uint32(length[:])
		switch {
		case n == 0:
			return nil
		case n == heartbeat:
			n = 0
		case n > maxFrame:
			return fmt.Errorf("invalid frame of %d bytes, expected at most %d", n, maxFrame)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return unexpected(err)
		}
		if n > 0 { // an empty write to an io.Pipe would reach its reader as a read of 0 bytes
			if _, err := w.Write(buf[:n]); err != nil {
				return fmt.Errorf("%w: %w", errOutput, err)
			}
		}
		if err := live(int(n)); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
	}
}

// unexpected turns io.EOF, the error of a stream that ends before its end
// frame, into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// maxLine is the maximum length in bytes of a line that the sender (the
// launching machine) and a host exchange, such as "at 4096".
const maxLine = 1 << 10

// readLine reads a line and returns it without its line feed. The buffer of r
// must hold at least maxLine bytes.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == nil && len(line) <= maxLine:
		return string(line[:len(line)-1]), nil
	case err == nil || errors.Is(err, bufio.ErrBufferFull):
		return "", errors.New("received a line of more than 1 KiB")
	case errors.Is(err, io.EOF) && len(line) > 0:
		return "", io.ErrUnexpectedEOF
	}
	return "", err
}
