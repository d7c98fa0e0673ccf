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
	maxFrame  = 256 << 10 // bytes of a frame
	beat      = ^uint32(0)
	beatEvery = 5 * time.Second // how often a sender without bytes sends a beat
	// patience is how long a peer may be silent or take nothing. It is four beats.
	patience = 20 * time.Second
)

// frames writes a stream in frames.
type frames struct {
	w   io.Writer
	buf []byte
}

func newFrames(w io.Writer) *frames { return &frames{w: w, buf: make([]byte, 4+maxFrame)} }

// Write writes b in frames.
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

// mark writes a frame that is a length only: 0 or beat.
func (f *frames) mark(length uint32) error {
	_, err := f.w.Write(binary.LittleEndian.AppendUint32(nil, length))
	return err
}

// errKeep marks the error of a writer to which readFrames gave the stream.
var errKeep = errors.New("keep what was received")

// readFrames copies a stream to w, and calls live after each frame.
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
		case n == beat:
			n = 0
		case n > maxFrame:
			return fmt.Errorf("a frame of %d bytes", n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return unexpected(err)
		}
		if n > 0 { // a pipe hands an empty write on, as a read of nothing
			if _, err := w.Write(buf[:n]); err != nil {
				return fmt.Errorf("%w: %w", errKeep, err)
			}
		}
		if err := live(int(n)); err != nil {
			return fmt.Errorf("%w: %w", errKeep, err)
		}
	}
}

// unexpected is the error of a stream that ends before its last frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// maxLine is the most bytes of a line of the conversation.
const maxLine = 1 << 10

// readLine reads a line without its end. r must hold maxLine bytes at least.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == nil && len(line) <= maxLine:
		return string(line[:len(line)-1]), nil
	case err == nil || errors.Is(err, bufio.ErrBufferFull):
		return "", errors.New("a line that is too long")
	case errors.Is(err, io.EOF) && len(line) > 0:
		return "", io.ErrUnexpectedEOF
	}
	return "", err
}
